//! What this process has used so far.

use std::{fs, time::Duration};

/// Lets background work end before the steady figure is read.
const SETTLE_TIME: Duration = Duration::from_secs(2);

/// User plus system time of this process.
pub fn cpu_seconds() -> f64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: getrusage fills the whole struct when it returns 0, which it does for RUSAGE_SELF.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

pub fn peak_mib() -> f64 {
    status_mib("VmHWM:")
}

/// Gives free pages back to the system first: what remains is what the cache needs.
pub async fn steady_mib() -> f64 {
    tokio::time::sleep(SETTLE_TIME).await;
    // SAFETY: malloc_trim has no preconditions.
    unsafe { libc::malloc_trim(0) };
    status_mib("VmRSS:")
}

/// Makes VmHWM count from now, so that a later scenario does not report the peak of the first sync.
pub fn reset_peak() -> bool {
    fs::write("/proc/self/clear_refs", "5").is_ok()
}

fn status_mib(field: &str) -> f64 {
    fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status.lines().find_map(|line| line.strip_prefix(field))?;
            line.split_whitespace().next()?.parse::<f64>().ok()
        })
        .map_or(-1.0, |kib| kib / 1024.0)
}
