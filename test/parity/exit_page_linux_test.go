package parity

import (
	"fmt"
	"strings"
)

// exitPage returns the text of docs/exit.md. Successive endings with the same result share a row.
func exitPage(cells map[exitRun]*cell) string {
	var b strings.Builder
	b.WriteString(exitIntroduction)
	b.WriteString("| the program writes | and ends by | tcp | shm | iwarp |\n|---|---|---|---|---|\n")
	for row := range exitRows {
		for first := 0; first < len(endings); {
			results := exitResults(cells, row, first)
			next := first + 1
			for next < len(endings) && exitResults(cells, row, next) == results {
				next++
			}
			ending := strings.Join(endings[first:next], ", ")
			if next-first == len(endings) {
				ending = "each"
			}
			fmt.Fprintf(&b, "| %s | %s |%s\n", exitRows[row].name, ending, results)
			first = next
		}
	}
	b.WriteString(exitRemains)
	return b.String()
}

// exitResults returns the cells of a row of the page.
func exitResults(cells map[exitRun]*cell, row, ending int) string {
	var b strings.Builder
	for _, k := range stacks() {
		result := "–"
		if c, ok := cells[exitRun{k.name, row, ending}]; ok {
			result = c.String()
		}
		fmt.Fprintf(&b, " %s |", result)
	}
	return b.String()
}

const exitIntroduction = `# A program that ends without Close

When Write has returned nil over TCP, the kernel delivers the bytes even if the program exits, panics or is killed in the next instruction.

One process dials, writes and ends without Close; another accepts, reads to the end and checks every byte. A cell says in how many runs every byte arrived, and what the reader's last Read returned. The endings are os.Exit(0), the return of TestMain in a test binary, panic and SIGKILL.

` + "`go test ./test/parity -run TestExitTable -timeout 30m -runs 20 -write`" + ` writes this page. Without ` + "`-write`" + ` the test makes fewer runs and fails if a promise is broken:

- tcp: every byte in all runs;
- shm, a connection of one host: every byte in all runs, and then EOF;
- iwarp: every byte in all runs of the rows with up to 101 small Writes.

`

const exitRemains = `
**shm.** Bytes in shared memory outlive the process, because the reader has mapped them; the kernel's FIN says that no more will come. In the rows above most connections end before they move. ` + "`TestMatrix`" + ` and ` + "`TestPeerDiesAfterWriting`" + ` in ` + "`internal/stream`" + ` kill writers after that.

**iwarp.** Dial waits for Accept, so there is no last row. The bytes are with the kernel's socket when Write returns. If a credit update of the peer lies unread in that socket when the process ends, or arrives later, the kernel answers with a reset and drops what it has not sent. The reader gets what has arrived, and then ECONNRESET. A program that must be sure calls Close, and then ` + "`sdp.WaitClosed`" + ` before it exits.

**verbs.** What the network card has not sent dies with the process. A reader whose peer ended without Close gets ECONNRESET.
`
