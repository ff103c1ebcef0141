//! Draws the results as an SVG: a bar per strategy for orders per second on a logarithmic axis,
//! with the 99th percentile beside it; or the number of oversold units. Light or dark by the
//! reader's system setting.

use std::fmt::Write as _;

use super::results::{Machine, Results, SharedServers};
use super::results_table::{count, describe_method, short};
use super::runs::{BATCHED, BenchRunResult};

const TITLE: &str = "One hot item: orders per second, by strategy";
const WIDTH: f64 = 860.0;
const LEFT: f64 = 130.0;
/// Right end of the longest bar; the rest of the width is for labels.
const RIGHT: f64 = 590.0;
const TOP: f64 = 92.0;
const ROW: f64 = 38.0;
const BAR: f64 = 24.0;
const FOOT: f64 = 96.0;

const STYLE: &str = "
  .paper{fill:#fff;stroke:#d0d7de} .grid{stroke:#d8dee4} .ours{fill:#0a6e5c} .theirs{fill:#6b8299}
  .no-op{fill:#c3cad2} text{fill:#1f2328;stroke:#fff;stroke-width:4px;paint-order:stroke;
  font:15px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif} .small{font-size:13px;
  fill:#59636e} .title{font-size:19px;font-weight:600} .broken{fill:#b42318;font-weight:600}
  .end{text-anchor:end} .mid{text-anchor:middle}
  @media (prefers-color-scheme:dark){.paper{fill:#0d1117;stroke:#30363d} .grid{stroke:#262c36}
  .ours{fill:#3fb994} .theirs{fill:#6b8299} .no-op{fill:#3d444d} text{fill:#e6edf3;stroke:#0d1117}
  .small{fill:#9198a1} .broken{fill:#ff7b72}}";
/// Strategies of this project, drawn in a color of their own.
const OURS: [&str; 2] = ["fenced", BATCHED];

pub(super) fn draw(results: &Results) -> String {
    let strategies = results.hot().count();
    let no_op = results.no_op();
    let bottom = TOP + ROW * (strategies + 1) as f64;
    let height = bottom + FOOT;

    let rates = results.hot().filter_map(|result| result.per_second);
    let axis = ValueAxis::over(rates.chain(no_op).map(|spread| spread.median));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\n<title>{TITLE}</title>\n\
         <style>{STYLE}</style>\n<rect class=\"paper\" x=\"0.5\" y=\"0.5\" rx=\"8\" width=\"{}\" \
         height=\"{}\"/>\n",
        WIDTH - 1.0,
        height - 1.0
    );

    text(&mut svg, 24.0, 36.0, "title", TITLE);
    text(&mut svg, 24.0, 60.0, "small", &describe_method(&results.method, "two replicas"));
    for (decade, x) in axis.decades() {
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{}\" x2=\"{x:.1}\" y2=\"{bottom}\"/>",
            TOP - 6.0
        );
        text(&mut svg, x, bottom + 20.0, "small mid", &count(decade));
    }

    for (at, result) in results.hot().enumerate() {
        row(&mut svg, &axis, TOP + ROW * at as f64, result);
    }
    if let Some(noop) = no_op {
        let y = TOP + ROW * strategies as f64;
        bar(&mut svg, y, "no-op", "no-op", axis.x(noop.median));
        let words = format!("{} responses/s, no order", count(noop.median));
        text(&mut svg, axis.x(noop.median) + 10.0, y + 21.0, "small", &words);
    }

    let machine = &results.machine;
    let above = "Logarithmic axis; medians over the rounds, with the 99th percentile of waiting.";
    let below = describe_machine(machine);
    text(&mut svg, 24.0, height - 38.0, "small", above);
    text(&mut svg, 24.0, height - 18.0, "small", &below);
    svg.push_str("</svg>\n");
    svg
}

fn describe_machine(machine: &Machine) -> String {
    let Machine { postgres, redis, cores, date, yours, .. } = machine;
    match yours {
        None => {
            format!(
                "Clients, replicas, Postgres {postgres} and {redis} share {cores} cores. {date}"
            )
        }
        Some(SharedServers { postgres_ms, redis_ms, pool_size, .. }) => format!(
            "Clients and replicas share {cores} cores. Postgres {postgres}: {} ms, {pool_size} \
             connections each; {redis}: {} ms. {date}",
            short(*postgres_ms),
            short(*redis_ms),
        ),
    }
}

fn row(svg: &mut String, axis: &ValueAxis, y: f64, result: &BenchRunResult) {
    let name = result.run.strategy;
    let Some(orders) = result.per_second else {
        text(svg, LEFT - 12.0, y + 21.0, "end", name);
        text(svg, LEFT + 8.0, y + 21.0, "broken", &result.audit.to_string());
        return;
    };

    let end = axis.x(orders.median);
    let class = if OURS.contains(&name) { "ours" } else { "theirs" };
    bar(svg, y, name, class, end);
    let p99 = result.p99_ms.map_or(String::new(), |ms| format!(" · p99 {} ms", short(ms.median)));
    text(svg, end + 10.0, y + 21.0, "", &format!("{}{p99}", count(orders.median)));
}

fn bar(svg: &mut String, y: f64, name: &str, class: &str, end: f64) {
    text(svg, LEFT - 12.0, y + 21.0, "end", name);
    let _ = writeln!(
        svg,
        "<rect class=\"{class}\" x=\"{LEFT}\" y=\"{}\" rx=\"3\" width=\"{:.1}\" height=\"{BAR}\"/>",
        y + 4.0,
        (end - LEFT).max(1.0)
    );
}

fn text(svg: &mut String, x: f64, y: f64, class: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{words}</text>");
}

struct ValueAxis {
    from: f64,
    to: f64,
}

impl ValueAxis {
    fn over(rates: impl Iterator<Item = f64>) -> Self {
        let mut least = 1e6_f64;
        let mut most = 1.0_f64;
        for rate in rates {
            least = least.min(rate.max(1.0));
            most = most.max(rate);
        }

        // At least half a decade of bar for the slowest.
        let from = (least.log10() - 0.5).floor();
        Self { from, to: most.log10().ceil().max(from + 1.0) }
    }

    fn x(&self, rate: f64) -> f64 {
        let part = (rate.max(1e-9).log10() - self.from) / (self.to - self.from);
        LEFT + (RIGHT - LEFT) * part.clamp(0.0, 1.0)
    }

    fn decades(&self) -> impl Iterator<Item = (f64, f64)> {
        (self.from as i32..=self.to as i32).map(|decade| {
            let rate = 10_f64.powi(decade);
            (rate, self.x(rate))
        })
    }
}
