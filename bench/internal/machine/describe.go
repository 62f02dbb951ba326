// Package machine describes the machine on which a benchmark runs, the distance
// between its processors, and the load from other programs.
package machine

import (
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// A Description says on which machine and of which commit a report was made.
type Description struct {
	Processor  string    `json:"processor"`
	Processors int       `json:"processors"`
	System     string    `json:"system"`
	Kernel     string    `json:"kernel"`
	Go         string    `json:"go"`
	Commit     string    `json:"commit"`
	Time       time.Time `json:"time"`
}

// Describe describes this machine. What it cannot find out is "unknown".
func Describe() Description {
	return Description{
		Processor:  orUnknown(processor()),
		Processors: runtime.NumCPU(),
		System:     runtime.GOOS + "/" + runtime.GOARCH,
		Kernel:     orUnknown(kernel()),
		Go:         runtime.Version(),
		Commit:     orUnknown(commit()),
		Time:       time.Now().UTC().Truncate(time.Second),
	}
}

func orUnknown(text string) string {
	if text = strings.TrimSpace(text); text == "" {
		return "unknown"
	}
	return text
}

// commit returns the commit of the working directory, with a note if tracked files
// have changed since.
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
