//! Loads of a page as one HTML file.

use manyways_net::probe::{Explanation, Measurement, PageReport, PageRun, Report};
use manyways_report::number::{bytes, span};
use manyways_report::waterfall::{Panel, Row, Waterfall};
use manyways_report::{Column, Page, TableRow};
use manyways_unit::{Span, Time, human};

use super::explain::{object, path_cells, prediction_cells, shares, slack_cells};

/// Rows of a table.
const MAX_ROWS: usize = 200;

/// The page of all networks that were measured.
pub fn html(reports: &[Report]) -> String {
    let pages: Vec<(&str, &PageReport)> = reports
        .iter()
        .filter_map(|report| match &report.measurement {
            Some(Measurement::Page(page)) => Some((report.context.interface.as_str(), page)),
            _ => None,
        })
        .collect();
    let target = reports.first().map(|report| report.target.as_str()).unwrap_or_default();
    let lead = "Loads of a page in a browser with an empty profile. Of several loads, the one with the \
                median page load time is shown.";
    let mut page = Page::new(&format!("Loads of {target}"), lead);
    let panels: Vec<Panel> =
        pages.iter().filter_map(|(interface, loads)| panel(interface, loads)).collect();
    if !panels.is_empty() {
        let waterfall = Waterfall {
            title: "Waterfall".to_owned(),
            description:
                "One row per request: the wait for the response, then the response. The page \
                          load waited for the requests on its critical path."
                    .to_owned(),
            time_label: "seconds since the start of the navigation".to_owned(),
            legend: ["on the critical path", "not on the path"].map(str::to_owned).into(),
            panels,
        };
        page.figure(&waterfall.draw(), "Requests, and the critical path to the page load");
    }
    for (interface, loads) in &pages {
        let Some(run) = loads.typical() else { continue };
        page.heading(interface);
        highlights(&mut page, loads);
        if let Some(explanation) = loads.explanation() {
            explain(&mut page, explanation, run);
        }
    }
    page.html(concat!("manyways ", env!("CARGO_PKG_VERSION"), " probe page"))
}

fn panel(interface: &str, loads: &PageReport) -> Option<Panel> {
    let run = loads.typical()?;
    let path = loads.explanation().map(|explanation| &explanation.load);
    let mut indices: Vec<usize> = (0..run.load.requests.len()).collect();
    indices.sort_by_key(|index| run.load.requests[*index].times.issued);
    let rows = indices.into_iter().filter_map(|index| {
        let times = &run.load.requests[index].times;
        let start = times.issued?;
        let end = times.ended.or(times.first_byte).unwrap_or(start);
        let is_on_path = path.is_some_and(|path| path.has_request(index));
        Some(Row {
            label: object(run, index),
            colour: usize::from(!is_on_path),
            start: start.as_secs_f64(),
            first_byte: times.first_byte.map(Time::as_secs_f64),
            end: end.as_secs_f64(),
        })
    });
    let rows: Vec<Row> = rows.collect();
    let loaded = run
        .timings
        .load
        .map_or_else(|| "not loaded".to_owned(), |load| format!("loaded after {}", span(load)));
    Some(Panel {
        label: interface.to_owned(),
        about: format!("{}, {loaded}", human::count_with_noun(rows.len(), "request")),
        rows,
    })
}

fn highlights(page: &mut Page, loads: &PageReport) {
    let median = loads.medians();
    let time = |name: &str, time: Option<Span>| {
        (name.to_owned(), time.map_or_else(|| "–".to_owned(), span))
    };
    page.highlights(&[
        ("loads".to_owned(), loads.runs.len().to_string()),
        time("first contentful paint", median.first_contentful_paint),
        time("largest contentful paint", median.largest_contentful_paint),
        time("page interactive (PIT)", median.interactive),
        time("page load (PLT)", median.load),
        ("objects".to_owned(), median.objects.to_string()),
        ("received".to_owned(), bytes(median.bytes.as_bytes())),
    ]);
}

fn explain(page: &mut Page, explanation: &Explanation, run: &PageRun) {
    let rows = |cells: Vec<Vec<String>>| -> Vec<TableRow> {
        cells.into_iter().take(MAX_ROWS).map(TableRow::plain).collect()
    };
    let columns = Column::of(["From", "Time", "Cause", "Activity", "Object"], &[2, 3, 4]);
    let caption = format!("Critical path to the page load: {}", shares(&explanation.load));
    let (cells, remark) = path_cells(&explanation.load, run);
    page.table(&caption, &columns, &rows(cells));
    if let Some(remark) = remark {
        page.notes(&[remark]);
    }
    let caption = format!(
        "Critical path to the page being interactive: {}",
        shares(&explanation.interactive)
    );
    let (cells, remark) = path_cells(&explanation.interactive, run);
    page.table(&caption, &columns, &rows(cells));
    let blocked =
        format!("The parser waited {} for the network.", span(explanation.parser_blocked));
    page.notes(&remark.into_iter().chain([blocked]).collect::<Vec<_>>());
    let columns = Column::of(["Object", "Ended", "Slack"], &[0]);
    let caption = "How much later an object may come without a later page load";
    page.table(caption, &columns, &rows(slack_cells(explanation, run)));
    if !explanation.predictions.is_empty() {
        let columns = Column::of(["What if", "PIT", "PLT"], &[0]);
        let caption = "Predicted times under other conditions";
        page.table(caption, &columns, &rows(prediction_cells(explanation, run)));
    }
}
