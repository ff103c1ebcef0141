//! The runtime of background tasks.

use std::future::Future;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Spawns tasks on the runtime on which it was created: a guard may be dropped outside of any.
#[derive(Debug, Clone)]
pub(super) struct Background(Handle);

impl Background {
    pub(super) fn of_this_runtime() -> Self {
        Self(Handle::current())
    }

    pub(super) fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        #[cfg(test)]
        let task = crate::time::virtual_clock::shuffled(task);
        self.0.spawn(task)
    }
}
