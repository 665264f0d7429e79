use super::super::mutations::{
    Asked, Parameters, Sample, index, population, population_of_urls, second_run,
};
use super::super::{Answer, Index, Rule, Session};

/// Outcomes of the requests of second runs.
#[derive(Debug, Default)]
struct Rates {
    asked: usize,
    with_recording: usize,
    missed: usize,
    wrong: usize,
}

impl Rates {
    fn add(&mut self, index: &Index, recorded: &[Sample], asked: &[Asked]) {
        let mut session = Session::new();
        for request in asked {
            let fields = request.rendered.borrowed_fields();
            let answer = index.find(&mut session, &request.rendered.request(&fields));
            let found = answer.hit().map(|hit| recorded[hit.id].object);
            self.asked += 1;
            self.with_recording += usize::from(request.object.is_some());
            self.missed += usize::from(request.object.is_some() && found.is_none());
            let is_wrong = found.is_some() && found != request.object;
            self.wrong += usize::from(is_wrong);
            if std::env::var_os("MATCHING_SHOW").is_some() && found != request.object {
                show(request, &answer);
            }
        }
    }

    fn missed_share(&self) -> f64 {
        self.missed as f64 / self.with_recording as f64
    }

    fn wrong_share(&self) -> f64 {
        self.wrong as f64 / self.asked as f64
    }
}

fn show(request: &Asked, answer: &Answer) {
    let kind = if request.object.is_none() { "other" } else { "known" };
    let url = format!(
        "{}{}?{:?}",
        request.rendered.authority, request.rendered.path, request.rendered.query
    );
    let body = request.rendered.body.escape_ascii();
    println!("{kind} {} {url} {body}", request.rendered.method);
    let (score, differences) = match answer {
        Answer::Approximate { score, differences, .. } => (*score, differences.clone()),
        Answer::Miss { nearest: Some(nearest) } => (nearest.score, nearest.differences.clone()),
        _ => (1.0, Vec::new()),
    };
    println!("   {score:.3} {}", if answer.hit().is_some() { "HIT" } else { "miss" });
    for difference in differences {
        println!("   {difference}");
    }
}

/// Development seeds: those from 1000 on belong to the benchmark.
#[test]
fn few_requests_are_missed_and_fewer_get_a_wrong_object() {
    let parameters = Parameters::default();
    let (mut ours, mut mahimahi) = (Rates::default(), Rates::default());
    for seed in 1..=20 {
        let recorded = population(&parameters, seed);
        let asked = second_run(&parameters, &recorded, seed);
        ours.add(&index(Rule::Ours, &recorded), &recorded, &asked);
        let rule = Rule::Mahimahi { user_agent: true };
        mahimahi.add(&index(rule, &recorded), &recorded, &asked);
    }
    println!("ours {ours:?} {:.4} {:.5}", ours.missed_share(), ours.wrong_share());
    println!("mahimahi {mahimahi:?} {:.4} {:.5}", mahimahi.missed_share(), mahimahi.wrong_share());
    assert!(ours.missed_share() <= 0.002, "{ours:?}");
    assert!(ours.wrong_share() <= 0.0005, "{ours:?}");
}

/// Reads the URLs of the pages beside the project, if they are there.
fn pages() -> Vec<Vec<String>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/har");
    let Ok(files) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<_> = files.filter_map(|file| Some(file.ok()?.path())).collect();
    files.sort();
    let of_har = |path: &std::path::PathBuf| {
        #[expect(clippy::disallowed_methods, reason = "the test reads files of others")]
        let bytes = std::fs::read(path).ok()?;
        let har: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
        let entries = har["log"]["entries"].as_array()?;
        let url = |entry: &serde_json::Value| Some(entry["request"]["url"].as_str()?.to_owned());
        Some(entries.iter().filter_map(url).collect())
    };
    files.iter().filter_map(of_har).collect()
}

#[test]
fn requests_of_real_pages_are_found_again() {
    let pages = pages();
    if pages.is_empty() {
        println!("skipped: no HAR files beside the project");
        return;
    }
    let parameters = Parameters::default();
    let (mut ours, mut mahimahi) = (Rates::default(), Rates::default());
    for (urls, seed) in pages.iter().zip(1..) {
        let recorded = population_of_urls(&parameters, urls.iter().map(String::as_str));
        let asked = second_run(&parameters, &recorded, seed % 20 + 1);
        ours.add(&index(Rule::Ours, &recorded), &recorded, &asked);
        let rule = Rule::Mahimahi { user_agent: true };
        mahimahi.add(&index(rule, &recorded), &recorded, &asked);
    }
    println!("pages: ours {ours:?} {:.4} {:.5}", ours.missed_share(), ours.wrong_share());
    println!(
        "pages: mahimahi {mahimahi:?} {:.4} {:.5}",
        mahimahi.missed_share(),
        mahimahi.wrong_share()
    );
    assert!(ours.missed_share() <= 0.015, "{ours:?}");
    assert!(ours.wrong_share() <= 0.001, "{ours:?}");
}
