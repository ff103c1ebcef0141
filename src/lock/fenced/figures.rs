//! How long the lines are, as figures. No label: a key is never one.

/// What one key's line adds to the gauges of its process; taken off again when the line ends.
#[derive(Debug, Default)]
pub(super) struct Figures {
    contended: bool,
}

impl Figures {
    /// Somebody comes, behind so many others of this process.
    pub(super) fn joins(behind: usize) {
        metrics::histogram!("holdfast_lock_line_requests")
            .record(u32::try_from(behind).map_or(f64::INFINITY, f64::from));
    }

    /// Whether this process holds the key while another one waits for it, as far as is known.
    pub(super) fn contended(&mut self, contended: bool) {
        if self.contended != contended {
            let gauge = metrics::gauge!("holdfast_lock_contended_keys");
            if contended {
                gauge.increment(1.0)
            } else {
                gauge.decrement(1.0)
            }
            self.contended = contended;
        }
    }
}

impl Drop for Figures {
    fn drop(&mut self) {
        self.contended(false);
    }
}
