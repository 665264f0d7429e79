//! Reading a file.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::error::Category;
use serde_json::value::RawValue;

use manyways_unit::human::without_bom;
use manyways_unit::{Span, Time};

use super::body::Bodies;
use super::entry::{self, Context};
use super::raw::{self, List};
use super::{
    HarError, Import, MAX_ENTRIES, MAX_PAGES, SCHEMA, Warning, connections, date, extra, own,
};
use crate::archive::{Archive, Page};

/// Returns the content of a file beside the HAR file, by its name in the field `_file`.
pub(super) type Files<'a> = dyn FnMut(&str) -> Option<Vec<u8>> + 'a;

#[derive(Deserialize)]
struct File<'a> {
    #[serde(borrow)]
    log: Log<'a>,
}

#[derive(Deserialize)]
struct Log<'a> {
    #[serde(borrow, default)]
    creator: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pages: Option<&'a RawValue>,
    #[serde(borrow)]
    entries: List<'a, MAX_ENTRIES>,
    #[serde(borrow, default, rename = "_manyways")]
    extra: Option<&'a RawValue>,
}

/// Reads a HAR file. Bodies in files beside it become hollow.
///
/// # Errors
/// The file as a whole is useless. A damaged entry of another program is only a warning.
pub fn read(file: &[u8]) -> Result<Import, HarError> {
    read_with_files(file, |_| None)
}

/// Reads a HAR file and the files with bodies beside it. `files` gets the name in the field `_file`
/// of an entry of another program, which may be any text, and returns the decoded body; `None` if
/// there is none. For files of [`super::write()`] it is not called: bodies are found by digest.
///
/// # Errors
/// Those of [`read`].
pub fn read_with_files(
    file: &[u8],
    mut files: impl FnMut(&str) -> Option<Vec<u8>>,
) -> Result<Import, HarError> {
    let text = String::from_utf8_lossy(without_bom(file));
    let file: File = serde_json::from_str(&text).map_err(error)?;
    let log = file.log;
    if log.entries.length > MAX_ENTRIES {
        return Err(HarError::TooManyEntries(log.entries.length));
    }
    let mut import = match log.extra {
        Some(extra) => read_own(&log, extra)?,
        None => read_foreign(&log, &mut files),
    };
    if let Cow::Owned(_) = text {
        let message = "it is not UTF-8: damaged characters are replaced".to_owned();
        import.warnings.insert(0, Warning { entry: None, message });
    }
    Ok(import)
}

fn error(error: serde_json::Error) -> HarError {
    let (line, column) = (error.line(), error.column());
    let message = error.to_string();
    let message = message.split(" at line ").next().unwrap_or_default().to_owned();
    match error.classify() {
        Category::Eof => HarError::CutOff { line, column },
        Category::Data => HarError::NotHar(message),
        Category::Syntax | Category::Io => HarError::NotJson { message, line, column },
    }
}

fn read_foreign(log: &Log, files: &mut Files) -> Import {
    let mut import = Import::default();
    let mut bodies = Bodies::default();
    let mut drafts = Vec::new();
    let mut before = Time::ZERO;
    let mut without_coding = 0;
    for (number, value) in (1..).zip(&log.entries.values) {
        let warnings = Vec::new();
        let mut context = Context {
            bodies: &mut bodies,
            files: &mut *files,
            warnings,
            before,
            without_coding: 0,
        };
        let draft = serde_json::from_str(value.get())
            .map_err(|error| format!("it is damaged: {error}"))
            .and_then(|entry| entry::read(&entry, &mut context));
        without_coding += context.without_coding;
        let mut messages = context.warnings;
        match draft {
            Ok(draft) => {
                before = draft.exchange.started;
                drafts.push(draft);
            }
            Err(reason) => {
                import.left_out += 1;
                messages = vec![format!("{reason}; the entry is left out")];
            }
        }
        import.warn(number, messages);
    }
    if without_coding > 0 {
        let bodies =
            if without_coding == 1 { "1 body" } else { &format!("{without_coding} bodies") };
        let message = format!("{bodies} without the content coding, as HAR stores them decoded");
        import.warnings.push(Warning { entry: None, message });
    }
    let (exchanges, connections) = connections::assign(drafts);
    let creator: raw::Creator = raw::object(log.creator);
    let [name, version] =
        [creator.name, creator.version].map(|raw| raw::text(raw).unwrap_or_default());
    let pages = raw::list::<MAX_PAGES>(log.pages).values;
    let first = exchanges.first().map_or(Time::ZERO, |exchange| exchange.started);
    import.archive = Archive {
        creator: format!("{name} {version}").trim().to_owned(),
        pages: pages.into_iter().map(|value| page(&raw::object(Some(value)), first)).collect(),
        connections,
        exchanges,
        tunnelled: Vec::new(),
    };
    import.bodies = bodies.list;
    import
}

/// `first`: start of the first exchange, for a page without a start.
fn page(page: &raw::Page, first: Time) -> Page {
    let timings: raw::PageTimings = raw::object(page.timings);
    let started = raw::text(page.started).and_then(|text| date::parse(&text));
    Page {
        id: raw::text(page.id).unwrap_or_default(),
        title: raw::text(page.title).unwrap_or_default(),
        started: started.unwrap_or(first),
        content_loaded: raw::millis(timings.content_loaded),
        loaded: raw::millis(timings.loaded),
    }
}

fn read_own(log: &Log, extra: &RawValue) -> Result<Import, HarError> {
    #[derive(Deserialize)]
    struct Head {
        schema: String,
    }
    let damaged = |error: serde_json::Error| HarError::Damaged(error.to_string());
    let Head { schema } = serde_json::from_str(extra.get()).map_err(damaged)?;
    if schema != SCHEMA {
        return Err(HarError::Schema(manyways_unit::human::quoted(&schema)));
    }
    let extra: extra::Log = serde_json::from_str(extra.get()).map_err(damaged)?;
    let connections = extra.connections.into_iter().map(extra::Connection::read);
    let tunnelled = extra.tunnelled.into_iter().map(extra::Tunnel::read);
    let pages = raw::list::<MAX_PAGES>(log.pages).values;
    let archive = Archive {
        creator: extra.creator,
        pages: pages
            .into_iter()
            .map(own_page)
            .collect::<Result<_, _>>()
            .map_err(HarError::Damaged)?,
        connections: connections.collect::<Result<_, _>>().map_err(HarError::Damaged)?,
        exchanges: Vec::new(),
        tunnelled: tunnelled.collect::<Result<_, _>>().map_err(HarError::Damaged)?,
    };
    let mut import = Import { archive, ..Import::default() };
    let mut bodies = Bodies::default();
    for (number, value) in (1..).zip(&log.entries.values) {
        let failed = |message| HarError::Entry { number, message };
        let entry: raw::Entry = serde_json::from_str(value.get())
            .map_err(|error| failed(format!("it is damaged: {error}")))?;
        let mut messages = Vec::new();
        let connections = import.archive.connections.len();
        let exchange =
            own::read(&entry, connections, &mut bodies, &mut messages).map_err(failed)?;
        import.archive.exchanges.push(exchange);
        import.warn(number, messages);
    }
    import.bodies = bodies.list;
    Ok(import)
}

fn own_page(value: &RawValue) -> Result<Page, String> {
    let page: raw::Page = raw::object(Some(value));
    let extra = page.extra.ok_or("a page has no field _manyways")?;
    let extra: extra::Page =
        serde_json::from_str(extra.get()).map_err(|error| error.to_string())?;
    Ok(Page {
        id: raw::text(page.id).unwrap_or_default(),
        title: raw::text(page.title).unwrap_or_default(),
        started: Time::from_nanos(extra.started),
        content_loaded: extra.content_loaded.map(Span::from_nanos),
        loaded: extra.loaded.map(Span::from_nanos),
    })
}

impl Import {
    fn warn(&mut self, number: usize, messages: Vec<String>) {
        let warning = |message| Warning { entry: Some(number), message };
        self.warnings.extend(messages.into_iter().map(warning));
    }
}
