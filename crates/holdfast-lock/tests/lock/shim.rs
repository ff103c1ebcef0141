//! The time of day, shifted by as many seconds as a file says, for the process it is loaded into.
//!
//! No module of the tests: `clock_jumps` has `rustc` make a library of it, which `LD_PRELOAD` puts
//! before the C library of a Redis or of a client. The file is read with every look at the clock,
//! so a clock can jump while its process runs. Clocks that count spans of time are left alone.

use std::ffi::{OsString, c_int, c_long, c_void};
use std::sync::OnceLock;

const TIME_OF_DAY: [c_int; 2] = [0, 5]; // CLOCK_REALTIME, and the coarse one

#[cfg(target_arch = "x86_64")]
const CLOCK_GETTIME: c_long = 228;
#[cfg(target_arch = "aarch64")]
const CLOCK_GETTIME: c_long = 113;

/// A `timespec`, or a `timeval`.
#[repr(C)]
pub struct Time {
    seconds: c_long,
    fraction: c_long,
}

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
}

fn shift() -> c_long {
    static FILE: OnceLock<Option<OsString>> = OnceLock::new();
    let file = FILE.get_or_init(|| std::env::var_os("HOLDFAST_TEST_CLOCK"));
    let text = file.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// In place of the C library's.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: c_int, time: *mut Time) -> c_int {
    let failed = unsafe { syscall(CLOCK_GETTIME, c_long::from(clock), time) } != 0;
    if !failed && TIME_OF_DAY.contains(&clock) {
        unsafe { (*time).seconds += shift() };
    }
    if failed { -1 } else { 0 }
}

/// In place of the C library's.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gettimeofday(time: *mut Time, _zone: *mut c_void) -> c_int {
    let failed = unsafe { clock_gettime(TIME_OF_DAY[0], time) };
    if failed == 0 {
        unsafe { (*time).fraction /= 1_000 };
    }
    failed
}
