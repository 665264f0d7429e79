//! The servers that other tests download from do what those tests rely on: HTTP/2 and HTTP/1.1,
//! TLS, ranges and strong validators. curl is the witness, so that a fault of ours cannot hide.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::process::Command;

use manyways_tests::{
    Authority, Finished, Need, ServerConfig, WebServer, fault, finish, folder, needs, object,
    same_content,
};

use crate::for_each_web_server;

/// Two unused addresses of this host, which no other test uses.
fn free_addresses(host: IpAddr) -> [SocketAddr; 2] {
    // Both are held before either is given back, so that they differ.
    [(), ()]
        .map(|()| TcpListener::bind((host, 0)).expect("a free port"))
        .map(|listener| listener.local_addr().expect("a bound socket has an address"))
}

fn curl(authority: &Authority, words: &[&str]) -> Finished {
    finish(
        Command::new("curl")
            .args(["--silent", "--show-error", "--max-time", "30", "--noproxy", "*", "--cacert"])
            .arg(authority.authority())
            .args(words),
    )
    .expect_success()
}

fn serves_what_downloads_need(server: WebServer) {
    needs!(server.needs(), Need::Command("curl"));
    let (own, root) = (folder(), folder());
    let original = object(root.path(), "object", 3_000_001, 7);
    let host = IpAddr::from([127, 0, 41, server as u8 + 1]);
    let authority =
        Authority::new(own.path(), &["origin.lab", &host.to_string()]).expect("a certificate");
    let [plain, secure] = free_addresses(host);
    let config = ServerConfig {
        root: root.path(),
        plain: &[plain],
        secure: &[secure],
        authority: Some(&authority),
        extra_config: "",
    };
    let server = server.configure(own.path(), &config).expect("a configuration");
    let _running = server.start(&[]);

    let copy = own.path().join("copy");
    let copy_text = copy.display().to_string();
    let show = "%{http_code} %{http_version} %header{etag}";
    for (url, option, version) in [
        (format!("https://{secure}/object"), "--http2", "2"),
        (format!("https://{secure}/object"), "--http1.1", "1.1"),
        (format!("http://{plain}/object"), "--http1.1", "1.1"),
    ] {
        let all = curl(&authority, &["-o", &copy_text, "-w", show, option, &url]).stdout;
        assert!(all.starts_with(&format!("200 {version} \"")), "{url} {option}: {all}");
        fault!(same_content(&original, &copy), "{url} {option}");
        let part = ["-r", "1000-1999", "-o", &copy_text, "-w", show, option, &url];
        let part = curl(&authority, &part).stdout;
        assert!(part.starts_with(&format!("206 {version} \"")), "{url} {option}: {part}");
        let read = |path| std::fs::read(path).expect("a file that was written");
        assert_eq!(read(&copy), &read(&original)[1000..2000], "{url} {option}");
    }
}

for_each_web_server!(serves_what_downloads_need);
