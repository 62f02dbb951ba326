package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

const usage = "the arguments must be a go command, such as go test -race ./sdp"

// command is a go command as the user wrote it.
type command struct {
	tool     string   // the go command
	name     string   // test, build, run or vet
	args     []string // after the name
	packages []string // those of args that name packages; "." if there are none
}

// booleans are the go command's flags that take no separate value. Any other flag takes the
// next argument.
var booleans = strings.Fields(`a asan artifacts benchmem buildvcs c cover diff failfast fix fullpath i
	json linkshared modcacherw msan n race short trimpath v work x`)

// refused are flags that swap sets itself or cannot pass on.
var refused = map[string]string{
	"C":       "use swap's own -C",
	"mod":     "swap sets it",
	"modfile": "swap sets it",
	"overlay": "swap sets it",
}

func parseCommand(args []string) (*command, error) {
	if len(args) < 2 || !strings.HasPrefix(filepath.Base(args[0]), "go") {
		return nil, errors.New(usage)
	}
	c := &command{tool: args[0], name: args[1], args: slices.Clone(args[2:])}
	if !slices.Contains([]string{"test", "build", "run", "vet"}, c.name) {
		return nil, fmt.Errorf("go %s is not supported; use go test, build, run or vet", c.name)
	}
	for i := 0; i < len(c.args) && c.args[i] != "-args" && c.args[i] != "--args" && c.args[i] != "--"; i++ {
		name, value, isFlag := parseFlag(c.args[i])
		switch {
		case !isFlag:
			c.packages = c.patterns(c.args[i:])
		case refused[name] != "":
			return nil, fmt.Errorf("go %s %s: %s", c.name, c.args[i], refused[name])
		case value == "" && !slices.Contains(booleans, name):
			i++
		}
		if len(c.packages) > 0 {
			break
		}
	}
	for _, p := range c.packages {
		if strings.HasSuffix(p, ".go") {
			return nil, fmt.Errorf("go %s %s: name the package, not its files", c.name, p)
		}
	}
	if len(c.packages) == 0 {
		c.packages = []string{"."}
	}
	return c, nil
}

// parseFlag splits -name=value. The value is empty if there is no equals sign.
func parseFlag(arg string) (name, value string, ok bool) {
	if !strings.HasPrefix(arg, "-") {
		return "", "", false
	}
	name, value, _ = strings.Cut(strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-"), "=")
	return name, value, true
}

// patterns returns the leading arguments that name packages. args[0] does.
func (c *command) patterns(args []string) []string {
	if c.name == "run" {
		return args[:1]
	}
	end := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "-") })
	if end < 0 {
		end = len(args)
	}
	return args[:end]
}

// flag finds a flag, and returns the index in args at which its value is, and the value. The
// index is -1 if the command does not have the flag.
func (c *command) flag(want string) (index int, value string) {
	for i, arg := range c.args {
		name, value, isFlag := parseFlag(arg)
		switch {
		case arg == "-args" || arg == "--args":
			return -1, ""
		case !isFlag || name != want:
		case value != "" || slices.Contains(booleans, name):
			return i, value
		case i+1 < len(c.args):
			return i + 1, c.args[i+1]
		}
	}
	return -1, ""
}

// tags returns the -tags flag for other go commands.
func (c *command) tags() []string {
	if i, value := c.flag("tags"); i >= 0 {
		return []string{"-tags=" + value}
	}
	return nil
}

// keepOutput makes the command write its output relative to the directory where swap was
// called. The copy of the module would be removed with the output.
func (c *command) keepOutput(packages []pkg) error {
	i, file := c.flag("o")
	if i < 0 {
		only, _ := c.flag("c")
		if c.name == "test" && only >= 0 || c.name == "build" && len(packages) == 1 && packages[0].Name == "main" {
			return fmt.Errorf("with -module, go %s needs -o, because the copy of the module is removed", c.name)
		}
		return nil
	}
	absolute, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	if strings.HasSuffix(file, string(filepath.Separator)) {
		absolute += string(filepath.Separator) // names a directory
	}
	c.args[i] = strings.TrimSuffix(c.args[i], file) + absolute
	return nil
}
