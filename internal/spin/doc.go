// Package spin decides, for every device, how long a wait polls before it parks.
//
// A wake-up takes longer than most answers: the kernel wakes a thread, and the runtime runs the
// goroutine. A wait that polls for a moment saves that, and takes processor time from others. So
// there is one policy for the whole process:
//
//   - A wait begins with a few looks, separated only by PAUSE. They cost less than the system calls
//     of a wake-up.
//   - Then it takes steps of some 100 ns, with a sched_yield now and then, because the peer may be
//     waiting for this very processor. One goroutine of the process does this at a time, and only if
//     it has recently paid off (Waiter).
//   - The process has a budget for these steps. A wait that steps have shortened may have taken as
//     long as a wake-up. What took longer, or was in vain, is charged to a share of a processor's
//     time, or of the process's own processor time if that is less. There is no share if GOMAXPROCS
//     is 1 or the cgroup's quota is less than a processor.
//   - A goroutine that never parks prevents its P from polling the network. A wait that finds events
//     there twice within 50 µs parks. The runtime also interrupts such a goroutine every 10 ms, which
//     costs more than a wake-up, so one wait parks every 5 ms if waits are few.
//   - With many busy connections, one goroutine polls for all parked waits (Watch).
//   - A sender that waits for room in a ring uses a Room instead of a Waiter. It looks for at most
//     200 µs, as long as that pays, and uses the same budget.
//
// SDP_BUSY_POLL and Config.BusyPoll replace the first three by a fixed time.
package spin
