//! A page load in a headless Chromium with an empty profile.

use std::io;

use manyways_net::browser::Home;

use super::Measurement;
use super::browser::Browser;
use super::dial::Dialer;
use super::page::{Page, path};
use super::web;

/// Load a page; the value is the time from the navigation's start to the end of the load event.
#[derive(clap::Args)]
pub struct Browse {
    /// How many objects the page has.
    #[arg(long, value_name = "N")]
    objects: usize,
    #[command(flatten)]
    browser: Browser,
}

impl Browse {
    pub async fn run(&self, dialer: &Dialer) -> io::Result<Measurement> {
        let base = web::base((*dialer.server.ip()).into(), dialer.server.port());
        let wanted = Page::new(self.objects).bytes(&base);
        let url = format!("{}{}", base(0), path(self.objects, 0));
        let loaded = self.browser.load(&url, wanted, dialer.socks, Home::Empty).await?;
        let more = [("megabytes".to_owned(), wanted as f64 / 1e6)].into();
        Ok(Measurement { value: loaded.millis / 1000.0, extra: more, ..Measurement::default() })
    }
}
