// Package limits tells whether this process may have more of what the kernel limits.
//
// A process has a limited number of mappings (vm.max_map_count) and descriptors (RLIMIT_NOFILE),
// and the runtime aborts a Go program that cannot map more heap. So [Admit] admits nothing above
// nine tenths of either limit, and nothing while the process locks all of its memory. [Filters] counts the seccomp filters, which may kill a process for a
// system call that it did not make before.
package limits
