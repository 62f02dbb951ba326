// Package machine tells what a benchmark must know of the machine that it runs
// on: what it is, how far apart its processors are, and who else is busy.
package machine

import (
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// A Description says where and of what a report is.
type Description struct {
	Processor  string    `json:"processor"`
	Processors int       `json:"processors"`
	System     string    `json:"system"`
	Kernel     string    `json:"kernel"`
	Go         string    `json:"go"`
	Commit     string    `json:"commit"`
	Time       time.Time `json:"time"`
}

// Describe looks. What cannot be found out is "unknown".
func Describe() Description {
	return Description{
		Processor:  known(processor()),
		Processors: runtime.NumCPU(),
		System:     runtime.GOOS + "/" + runtime.GOARCH,
		Kernel:     known(kernel()),
		Go:         runtime.Version(),
		Commit:     known(commit()),
		Time:       time.Now().UTC().Truncate(time.Second),
	}
}

func known(text string) string {
	if text = strings.TrimSpace(text); text == "" {
		return "unknown"
	}
	return text
}

// commit is that of the working directory, with a mark if its tracked files have
// been changed since.
func commit() string {
	head, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return ""
	}
	text := strings.TrimSpace(string(head))
	changed, err := exec.Command("git", "status", "--porcelain", "--untracked-files=no").Output()
	if err == nil && len(changed) > 0 {
		text += " with changes"
	}
	return text
}
