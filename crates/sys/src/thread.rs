//! Scheduling priority of threads.

use std::io;

/// Priority granted by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadPriority {
    /// `SCHED_FIFO`: before every ordinary thread.
    RealTime,
    /// Nice -20.
    Nice,
    /// Normal priority.
    Normal,
}

/// Raises the priority of the calling thread: `SCHED_FIFO` if `real_time`, otherwise, or if that
/// fails, nice -20. May be called again with the other value.
pub fn set_realtime(real_time: bool) -> ThreadPriority {
    if real_time && schedule(libc::SCHED_FIFO, 1) {
        return ThreadPriority::RealTime;
    }
    schedule(libc::SCHED_OTHER, 0);
    // SAFETY: 0 is the calling thread.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -20) } == 0 {
        ThreadPriority::Nice
    } else {
        ThreadPriority::Normal
    }
}

fn schedule(policy: libc::c_int, priority: libc::c_int) -> bool {
    let param = libc::sched_param { sched_priority: priority };
    // SAFETY: the parameter struct is valid; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, policy, &param) == 0 }
}

/// Returns the processor time of the process so far, in user and kernel mode.
pub fn process_cpu() -> io::Result<manyways_unit::Span> {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF)?;
    let micros = |t: nix::sys::time::TimeVal| t.tv_sec() as u64 * 1_000_000 + t.tv_usec() as u64;
    Ok(manyways_unit::Span::from_micros(micros(usage.user_time()) + micros(usage.system_time())))
}
