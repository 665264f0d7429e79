//! Downloads an object over all networks of this host at once:
//! `cargo run -p manyways-net --example download -- https://example.org/big.iso big.iso`.

use std::error::Error;
use std::io::{Write, stdout};

use manyways_net::fetch::{Client, Event, Job, PathSelection, SelectionOptions};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(url), Some(output)) = (args.next(), args.next()) else {
        return Err("usage: download URL FILE".into());
    };
    let job = Job::new(&url, output)?.resume(true);
    // The networks that lead to the server; a network that appears during the transfer joins it.
    let mut networks = PathSelection::new(SelectionOptions::new());
    let paths = networks.paths_to(job.location()).await?.unwrap_or_default();
    let mut client = Client::builder().paths(paths);
    if let Some(list) = networks.path_lister() {
        client = client.path_lister(list);
    }
    let mut on_event = |event: Event<'_>| {
        if let Event::Progress(progress) = event {
            print!("\r{} ", progress.done);
            let _ = stdout().flush();
        }
    };
    // A future that ends would stop the transfer, and a later run would continue it.
    let stop = std::future::pending();
    let report = client.build()?.fetch(&job, &mut on_event, stop).await?;
    println!("\rdone in {:.1} s", report.elapsed.as_secs_f64());
    for path in &report.paths {
        println!("{}: {} at {}", path.name, path.bytes, path.rate);
    }
    Ok(())
}
