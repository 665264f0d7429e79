//! A proxy that passes every connection on to one server.

use std::io;
use std::net::SocketAddr;

use super::{dial, splice};

/// Pass connections on to one server.
#[derive(clap::Args)]
pub struct ForwardArgs {
    /// Address to listen on.
    #[arg(long, value_name = "ADDR:PORT")]
    listen: SocketAddr,
    /// Where the connections go.
    #[arg(long, value_name = "ADDR:PORT")]
    to: SocketAddr,
}

pub async fn run(args: &ForwardArgs) -> io::Result<()> {
    let to = args.to;
    let pass = move |stream| async move {
        let on = dial::connect(None, false, to).await?;
        splice::join(stream, on).await
    };
    dial::serve(dial::listen(false, args.listen)?, pass).await
}
