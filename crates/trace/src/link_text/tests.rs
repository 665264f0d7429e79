use super::*;

fn no_files(file: &str) -> Result<Vec<u8>, String> {
    Err(format!("no {file} here"))
}

fn link(text: &str) -> LinkSpec {
    LinkSpec::parse(text, &mut no_files).unwrap()
}

fn wrong(text: &str) -> LinkError {
    LinkSpec::parse(text, &mut no_files).unwrap_err()
}
