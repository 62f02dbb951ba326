package sdp

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func shortFiles() {
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 4096, Max: 4096}); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
