//! Web applications that Debian has, each with its data in a folder of its own.

use std::path::Path;

use manyways_rig::launch::DriveError;
use manyways_rig::programs::program;
use manyways_unit::Span;

use super::lab::Lab;
use super::{HOST, Subject};
use crate::shell::Shell;

/// Number of applications.
pub const COUNT: usize = 2;

const DOKUWIKI: &str = "/usr/share/dokuwiki";
const WIKI_PORT: u16 = 8800;
const PROMPT_WIKI_PORT: u16 = 8801;
const PHP_PORT: u16 = 8802;
const SYNCTHING_PORT: u16 = 8384;
/// Time for the preparation of an application.
const PATIENCE: Span = Span::from_secs(30);

/// The applications that are installed, and why the others are left out.
pub fn prepare(shell: &Shell<'_>) -> Result<(Vec<Subject>, Vec<String>), DriveError> {
    let all: [(&str, Result<Subject, String>); COUNT] =
        [("DokuWiki", dokuwiki(shell)?), ("Syncthing", syncthing(shell)?)];
    let (mut found, mut skipped) = (Vec::new(), Vec::new());
    for (name, subject) in all {
        match subject {
            Ok(subject) => found.push(subject),
            Err(reason) => skipped.push(format!("{name}: {reason}")),
        }
    }
    Ok((found, skipped))
}

/// A wiki in PHP behind nginx. A second port of nginx answers from a cache, thus at once.
fn dokuwiki(shell: &Shell<'_>) -> Result<Result<Subject, String>, DriveError> {
    let (true, Some(_)) = (Path::new(DOKUWIKI).is_dir(), program("php-cgi")) else {
        return Ok(Err("dokuwiki or php-cgi is not installed: run scripts/setup bench".to_owned()));
    };
    let folder = shell.folder().display().to_string();
    let copied = shell.run(
        "mkdir sessions\ncp -rL /etc/dokuwiki wiki\ncp -r /var/lib/dokuwiki/data wiki/data",
        PATIENCE,
    )?;
    if let Err(reason) = copied {
        return Ok(Err(reason));
    }
    let folders = format!("<?php define('DOKU_CONF', '{folder}/wiki/');\n");
    shell.write("wiki/folders.php", folders)?;
    let data = format!(
        "<?php\n$conf['savedir'] = '{folder}/wiki/data';\n$conf['useacl'] = 0;\n\
         $conf['updatecheck'] = 0;\n"
    );
    shell.write("wiki/local.php", data)?;
    shell.write("wiki.conf", nginx(&folder))?;
    // The lab waits until each server has a port.
    let php = format!(
        "export PHP_FCGI_CHILDREN=4 PHP_FCGI_MAX_REQUESTS=0\n\
         exec php-cgi -d auto_prepend_file=\"$PWD/wiki/folders.php\" \
         -d session.save_path=\"$PWD/sessions\" -b 127.0.0.1:{PHP_PORT} >>php.log 2>&1\n"
    );
    shell.write("php.sh", php)?;
    let at = |port, path: &str| format!("http://{HOST}:{port}{path}");
    let page = "/doku.php?id=wiki:syntax";
    // The first load of each takes longer.
    let exe =
        ["css.php", "js.php", "jquery.php", "taskrunner.php"].map(|exe| format!("/lib/exe/{exe}"));
    let used = exe.iter().map(String::as_str).chain([page]);
    let used: String = used.map(|path| format!(" -o wiki.out '{}'", at(WIKI_PORT, path))).collect();
    let subject = Subject {
        name: "DokuWiki".to_owned(),
        seed: None,
        servers: vec![
            "exec sh php.sh".to_owned(),
            "exec nginx -p . -e nginx.log -c \"$PWD/wiki.conf\"".to_owned(),
        ],
        before: format!("curl -sf --retry 20 --retry-delay 1 --retry-connrefused{used}"),
        url: at(WIKI_PORT, page),
        prompt_url: at(PROMPT_WIKI_PORT, page),
    };
    // Fills the caches of the wiki and of nginx.
    let mut lab = Lab::of("wan:delay=0ms".to_owned(), std::slice::from_ref(&subject));
    lab.loads.push(format!("--url '{}'", subject.prompt_url));
    let loaded = lab.run(shell)?.pop();
    Ok(loaded.unwrap_or_else(|| Err("it was not loaded".to_owned())).map(|_| subject))
}

fn nginx(folder: &str) -> String {
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|what| format!("  {what}_temp_path \"{folder}/{what}\";\n"))
        .concat();
    let server = |port, cache: &str| {
        format!(
            "  server {{\n    listen {port};\n    root {DOKUWIKI};\n    location ~ \\.php {{\n      \
             include /etc/nginx/fastcgi_params;\n      \
             fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;\n      \
             fastcgi_pass 127.0.0.1:{PHP_PORT};\n{cache}    }}\n  }}\n"
        )
    };
    let cache = "      fastcgi_cache wiki;\n      fastcgi_cache_key $request_uri;\n      \
                 fastcgi_cache_valid 200 1d;\n      \
                 fastcgi_ignore_headers Set-Cookie Cache-Control Expires Vary;\n";
    // The workers run as root, because the user namespace of a lab may have no other user.
    format!(
        "daemon off;\nuser root;\nworker_processes 1;\npid \"{folder}/nginx.pid\";\n\
         error_log \"{folder}/nginx.log\";\nevents {{ worker_connections 1024; }}\n\
         http {{\n{temporary}  include /etc/nginx/mime.types;\n  access_log off;\n  \
         fastcgi_cache_path \"{folder}/cache\" keys_zone=wiki:1m inactive=1d;\n{}{}}}\n",
        server(WIKI_PORT, ""),
        server(PROMPT_WIKI_PORT, cache)
    )
}

/// The interface of Syncthing, which one process serves.
fn syncthing(shell: &Shell<'_>) -> Result<Result<Subject, String>, DriveError> {
    if program("syncthing").is_none() {
        return Ok(Err("syncthing is not installed: run scripts/setup bench".to_owned()));
    }
    let made = "syncthing generate --home=syncthing --no-default-folder >syncthing.log";
    if let Err(reason) = shell.run(made, PATIENCE)? {
        return Ok(Err(reason));
    }
    let url = format!("http://{HOST}:{SYNCTHING_PORT}/");
    let serve = format!(
        "HOME=\"$PWD\" exec syncthing serve --home=syncthing --gui-address=0.0.0.0:{SYNCTHING_PORT} \
         --no-browser --no-restart --no-upgrade --no-default-folder >>syncthing.log 2>&1"
    );
    Ok(Ok(Subject {
        name: "Syncthing".to_owned(),
        seed: None,
        servers: vec![serve],
        before: format!("curl -sf --retry 20 --retry-delay 1 --retry-connrefused -o gui {url}"),
        url: url.clone(),
        prompt_url: url,
    }))
}
