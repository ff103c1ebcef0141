//! Metrics of the queues. They have no labels: a key must never be a label.

/// The contribution of one key to the gauges of its process; removed on drop.
#[derive(Debug, Default)]
pub(super) struct Figures {
    contended: bool,
}

impl Figures {
    /// Records a new waiter, with the number of waiters of this process before it.
    pub(super) fn joins(behind: usize) {
        metrics::histogram!("holdfast_lock_line_requests")
            .record(u32::try_from(behind).map_or(f64::INFINITY, f64::from));
    }

    /// Sets whether this process holds the key while another process is known to wait for it.
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
