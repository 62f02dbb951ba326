package parity

import (
	"fmt"
	"strings"
)

// exitPage returns the text of docs/exit.md.
func exitPage(cells map[exitRun]*cell) string {
	var b strings.Builder
	b.WriteString(exitIntroduction)
	b.WriteString("| the program writes | and ends by | tcp | shm | iwarp |\n|---|---|---|---|---|\n")
	for i := range exitRows {
		for ending, name := range endings {
			fmt.Fprintf(&b, "| %s | %s |", exitRows[i].name, name)
			for _, k := range stacks() {
				fmt.Fprintf(&b, " %s |", cells[exitRun{k.name, i, ending}])
			}
			b.WriteString("\n")
		}
	}
	b.WriteString(exitRemains)
	return b.String()
}

const exitIntroduction = `# A program that ends without Close

When Write has returned nil over TCP, the kernel delivers the bytes even if the program exits, panics or is killed in the next instruction. This page shows what of that holds over SDP.

One process dials, writes and ends without calling Close. Another process accepts, reads to the end and checks every byte. A cell says in how many runs every byte arrived, and what the reader's last Read returned. "Return from main" is the return of TestMain in a test binary, after which that binary's main function exits.

The table comes from ` + "`go test ./test/parity -run TestExitTable -timeout 30m -runs 20 -write`" + `. Without ` + "`-write`" + ` the same test, with fewer runs, fails if a cell gets worse than what is promised:

- tcp: every byte in all runs;
- shm: every byte in all runs, and then EOF;
- iwarp: every byte in all runs of the rows with up to 101 small Writes, and in 90 % of those with one Write of 1 MB. 10,000 small Writes are only reported.

`

const exitRemains = `
## What remains

**iwarp** is carried by a TCP connection, and the bytes of a Write are with the kernel's socket when Write returns. The peer's library returns credit for the messages that it has received, with messages of its own. If such a credit update lies unread in the socket when the process ends, or arrives after that, the kernel answers with a reset and drops what it has not sent yet. What the peer has received it can still read, and then gets ECONNRESET. The more messages are on their way at the end, the more likely that is. A program that must be sure calls Close, and then ` + "`sdp.WaitClosed`" + ` before it exits.

**verbs** hands the bytes of a Write to the network card, which works for the process: what the card has not sent dies with it. A reader whose peer ended without Close gets ECONNRESET, because bytes may be missing.
`
