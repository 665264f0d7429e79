//! A gateway and a client in one program, over two loopback paths; the client carries a connection
//! to a server: `cargo run -p manyways-net --example bond`.

use std::error::Error;
use std::net::SocketAddr;

use manyways_net::bond::{AllowFile, Client, ClientOptions, Gateway, GatewayOptions, PrivateKey};
use manyways_net::bond::{Destination, EgressFilter};
use manyways_net::path::PathSpec;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, spawn_local};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    // Client and gateway run as local tasks.
    LocalSet::new().run_until(run()).await
}

async fn run() -> Result<(), Box<dyn Error>> {
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = TcpListener::bind(any_port).await?;
    let target = server.local_addr()?;
    spawn_local(async move {
        let (mut stream, from) = server.accept().await?;
        stream.write_all(format!("hello, {from}\n").as_bytes()).await
    });

    let (gateway_key, client_key) = (PrivateKey::generate()?, PrivateKey::generate()?);
    // One line per client: its key and its name.
    let folder = tempfile::tempdir()?;
    let allow = folder.path().join("allow");
    std::fs::write(&allow, format!("{} phone\n", client_key.public()))?;
    let public = gateway_key.public();
    let mut options = GatewayOptions::new(vec![any_port], gateway_key, AllowFile::open(&allow)?);
    options.egress = EgressFilter::new(vec!["127.0.0.0/8".parse()?]);
    let gateway = Gateway::bind(options)?;
    let addresses = gateway.addresses();
    spawn_local(gateway.run(std::future::pending()));

    let (client, mut events) = Client::new(ClientOptions::new(addresses, public, client_key))?;
    client.add_path(PathSpec::from_address("wifi", [127, 0, 0, 1].into()));
    client.add_path(PathSpec::from_address("lte", [127, 0, 0, 2].into()));
    for _ in 0..2 {
        println!("{:?}", events.recv().await);
    }

    // An application connects to this listener instead of the server.
    let listener = TcpListener::bind(any_port).await?;
    let connecting = TcpStream::connect(listener.local_addr()?);
    let (mut application, (accepted, _)) = tokio::try_join!(connecting, listener.accept())?;
    let target = Destination::Address(target.ip(), target.port());
    client.carry(accepted, target, 0, Default::default());
    let mut answer = String::new();
    application.read_to_string(&mut answer).await?;
    print!("{answer}");
    client.run(async {}).await;
    Ok(())
}
