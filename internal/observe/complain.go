package observe

import (
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/gosdp/gosdp/internal/events"
)

// Complaints has the variables of which standard error was told. Tests clear it.
var Complaints sync.Map

// Complain reports why what a variable of the environment asks for was not done: in the log, or, if the
// program has no Logger, as all that "sdp go" has built, once on standard error.
func Complain(log *slog.Logger, variable, message string, err error) {
	if log != nil {
		events.Process.Log(log, slog.LevelWarn, variable, message, "variable", variable, "error", err)
	} else if _, told := Complaints.LoadOrStore(variable, true); !told {
		fmt.Fprintf(os.Stderr, "%s: %s: %v\n", message, variable, err)
	}
}
