package parity

import (
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// roleVariable makes the test binary a child process. Its value is the name of a role and
// its arguments, separated by spaces.
const roleVariable = "PARITY_ROLE"

// roles returns the main functions of the child processes. A process ends when its role
// returns, or when its standard input ends.
func roles() map[string]func(arguments []string) {
	all := map[string]func([]string){
		"script": scriptMain,
		"peer":   peerMain,
		"closer": closerMain,
	}
	for name, role := range exitRoles() {
		all[name] = role
	}
	return all
}

func TestMain(m *testing.M) {
	if role := strings.Fields(os.Getenv(roleVariable)); len(role) > 0 {
		roles()[role[0]](role[1:])
		return
	}
	goleak.VerifyTestMain(m)
}
