//! Waiting for the disk where that holds up nobody else.

use tokio::runtime::Handle;

/// Runs what may wait for the disk on one of the runtime's threads for that; without a runtime, here.
pub(crate) async fn off_reactor<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let Ok(runtime) = Handle::try_current() else { return work() };
    match runtime.spawn_blocking(work).await {
        Ok(done) => done,
        // The task is never aborted, so it panicked: carry the panic on to whoever waits for it.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
