//! The judgement of a service as text for a terminal.

use super::report::ServiceJudgement;

pub fn format_service(judgement: &ServiceJudgement) -> String {
    let mut text = String::new();
    for pass in &judgement.passes {
        let f = &pass.figures;
        text += &format!(
            "{:12} {:>4} of {:<4} sold {:>3} stock {:>3} books {:>3} oversold {:>3} drift {:>3} lost {:>3} doubled {:>3} unknown {:>3} errors {:>3} hits {} gap {} p99 {} {}\n",
            pass.name,
            pass.lost_in,
            pass.runs,
            f.sold,
            f.stock,
            f.books_sold,
            f.oversold,
            f.drift,
            f.lost,
            f.doubled,
            f.unknown,
            f.errors,
            pass.hits,
            f.gap_ms,
            f.p99_ms,
            pass.why_not.clone().or(f.error.clone()).unwrap_or_default()
        );
        for evidence in &pass.evidence {
            for s in &evidence.statements {
                text += &format!(
                    "    i{} {:.1} {:.1} {} -- {}\n",
                    s.instance, s.sent_ms, s.answered_ms, s.sql, s.result
                );
            }
        }
    }
    text
}
