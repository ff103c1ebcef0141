//! A background task that ends with its owner.

use std::future::Future;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// A task that is aborted when this is dropped.
#[derive(Debug)]
pub(crate) struct AbortOnDrop(JoinHandle<()>);

impl AbortOnDrop {
    pub(crate) fn spawn(runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(runtime.spawn(task))
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
