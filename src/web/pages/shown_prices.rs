//! What a basket's page showed: lines, prices and the total, as its form sends them back. The total
//! is what its buyer agreed to; the rest is shown beside the new prices.

use std::collections::BTreeMap;

use crate::web::Problem;
use crate::web::middleware::FormFields;
use holdfast_base::messages::message;
use holdfast_shop::Sku;

#[derive(Debug, Default)]
pub(super) struct ShownPrices {
    pub total_cents: Option<i64>,
    lines: BTreeMap<Sku, ShownLine>,
}

#[derive(Debug, Clone, Copy)]
struct ShownLine {
    quantity: i64,
    price_cents: i64,
}

impl ShownPrices {
    pub fn of(form: &FormFields) -> Result<Self, Problem> {
        let total = form.all("expected_total_cents").next().map(str::parse).transpose();
        let no_number = |_| Problem::field("expected_total_cents", message!("problem-no-number"));
        let total_cents = total.map_err(no_number)?;
        // Of a line that cannot be read, no earlier price is shown.
        let lines = form.all("shown").filter_map(parse_line).collect();
        Ok(Self { total_cents, lines })
    }

    pub fn price_cents(&self, sku: &Sku) -> Option<i64> {
        self.lines.get(sku).map(|line| line.price_cents)
    }

    /// Returns whether it showed these quantities and no others.
    pub fn has_quantities(&self, basket: &BTreeMap<Sku, i64>) -> bool {
        let shown = self.lines.iter().map(|(sku, line)| (sku, &line.quantity));
        shown.eq(basket)
    }
}

/// Writes a line for the form.
pub(super) fn format_line(sku: &Sku, quantity: i64, price_cents: i64) -> String {
    format!("{sku}:{quantity}:{price_cents}")
}

fn parse_line(text: &str) -> Option<(Sku, ShownLine)> {
    let mut parts = text.split(':');
    let sku = Sku::try_from(parts.next()?.to_owned()).ok()?;
    let quantity = parts.next()?.parse().ok()?;
    let price_cents = parts.next()?.parse().ok()?;
    Some((sku, ShownLine { quantity, price_cents }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(fields: &[(&str, &str)]) -> FormFields {
        FormFields(fields.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect())
    }

    #[test]
    fn shown_lines_round_trip_and_nonsense_is_left_out() {
        let tea = Sku::try_from("tea".to_owned()).unwrap();
        let line = format_line(&tea, 3, 100);
        let fields = [("expected_total_cents", "300"), ("shown", line.as_str()), ("shown", "x:")];
        let shown = ShownPrices::of(&form(&fields)).unwrap();
        assert_eq!((shown.total_cents, shown.price_cents(&tea)), (Some(300), Some(100)));
        assert!(shown.has_quantities(&BTreeMap::from([(tea.clone(), 3)])));
        assert!(!shown.has_quantities(&BTreeMap::from([(tea, 4)])));

        assert_eq!(ShownPrices::of(&form(&[])).unwrap().total_cents, None);
        let problem = ShownPrices::of(&form(&[("expected_total_cents", "3.00")])).unwrap_err();
        assert_eq!(problem.detail().english(), "expected_total_cents: it is no number");
    }
}
