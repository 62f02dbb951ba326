// Package spin decides, for every device, how long a wait looks again and again before it
// parks.
//
// To be woken takes longer than most answers do: the kernel wakes a thread, and the
// runtime runs the goroutine. A wait that looks again for a moment saves that, and takes
// processor time from everyone else. So there is one policy for the whole process:
//
//   - A few looks come first, with nothing but PAUSE between. They take less than the
//     system calls of a wake-up.
//   - Steps of some 100 ns follow, with a sched_yield now and then, as the peer may be
//     waiting for this very processor. One goroutine of the process does this at a time,
//     and only where it has lately paid off (Waiter); beside it one that dials or accepts.
//   - The process has a budget for these steps. A wait that the steps have shortened may
//     have spun for as long as being woken takes. What lasts longer, or was in vain, is
//     charged to a share of a processor's time. The share is nothing where GOMAXPROCS is
//     1 or the cgroup has a CPU quota.
//   - A goroutine that never parks keeps its P from polling the network. A wait that finds
//     events there twice within 50 µs parks.
//   - A sender that waits for room in a ring has a Room in place of a Waiter. It looks for
//     200 µs at most, while that pays, and has the same budget.
//   - What is looked for once and not on a connection, such as the answer to a dial, has a
//     Habit in place of a Waiter, and the same budget.
//   - Two ends in one process do not spin for each other.
//
// SDP_BUSY_POLL and Config.BusyPoll replace the first three by a fixed time.
package spin
