package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/gosdp/gosdp/internal/adopt"
)

const goHelp = `
Runs the go command with the arguments, in a copy of the Go installation whose
package net uses SDP. Every program, test and library is built with it as it is:
Dial and Listen on networks of TCP use SDP where the peer does, and plain TCP
otherwise. Types, errors and options are those of package net.

The copy is made in the user's cache directory when it is needed first. The
version of Go is the one that the go command would use, so go.mod's toolchain
line counts. Programs for other systems than Linux on amd64 and arm64 are built
without SDP, and a line says so.

The flag -verbs before the go command's name adds the device for RDMA hardware,
which needs cgo and the headers of rdma-core.

"sdp build", "sdp test", "sdp run" and "sdp install" stand for "sdp go build"
and so on.

docs/adoption.md has the limits, and what environment variables do at run time.`

// goCommands returns "sdp go" and its shorthands.
func goCommands() []*command {
	cs := []*command{{
		name: "go", usage: "[-verbs] <go command> [arguments]",
		short: "runs a go command that builds programs with SDP",
		long:  goHelp,
		run:   runGo,
	}}
	for _, name := range []string{"build", "test", "run", "install"} {
		cs = append(cs, &command{
			name: name, usage: "[arguments]",
			short: "is short for sdp go " + name,
			long:  goHelp,
			run:   func(args []string) error { return runGo(append([]string{name}, args...)) },
		})
	}
	return cs
}

// runGo runs a go command.
func runGo(args []string) error {
	options, args := goOptions(args)
	if len(args) == 0 {
		return errors.New("a go command is missing, such as sdp go build")
	}
	g := goTool{options: options, args: args}
	return g.run(context.Background())
}

// goOptions parses the flags before the go command's name. The others belong to the go command.
func goOptions(args []string) (adopt.Options, []string) {
	o := adopt.Options{Cache: os.Getenv("SDP_GOCACHE")}
	for len(args) > 0 && (args[0] == "-verbs" || args[0] == "--verbs") {
		o.Verbs, args = true, args[1:]
	}
	return o, args
}

// goTool is one call of the go command.
type goTool struct {
	options adopt.Options
	args    []string
	dir     string // where it works, as far as -C says
}

// run runs the go command. It returns an exitStatus if that command fails.
func (g *goTool) run(ctx context.Context) error {
	g.dir = changeDir(g.args)
	env := os.Environ()
	t, err := adopt.Ask(ctx, "go", g.dir, nil)
	if err != nil {
		return err
	}
	if !t.Hooked() && g.builds() {
		if t.GOOS == "linux" {
			return fmt.Errorf("there is no SDP for linux/%s, only for %s; the go command itself builds without it", t.GOARCH, strings.Join(adopt.Architectures, " and "))
		}
		fmt.Fprintf(os.Stderr, "sdp: %s has no SDP: built without it\n", t.GOOS)
	}
	if g.options.Verbs && t.CGOEnabled != "1" {
		return errors.New("-verbs needs cgo: set CGO_ENABLED=1")
	}
	goroot, err := makeGOROOT(ctx, t, g.options)
	if err != nil {
		return err
	}
	needs := g.needs(ctx, goroot, env)
	if needs == "" || t.GOTOOLCHAIN == "local" {
		return g.exec(ctx, goroot, env)
	}
	// The go command would change to the toolchain that the package's go.mod asks for.
	if t, err = adopt.Ask(ctx, "go", g.dir, append(env, "GOTOOLCHAIN="+needs)); err != nil {
		return err
	}
	if goroot, err = makeGOROOT(ctx, t, g.options); err != nil {
		return err
	}
	return g.exec(ctx, goroot, env)
}

// makeGOROOT returns the second GOROOT. The user may interrupt that, and the go command itself deals
// with signals afterwards.
func makeGOROOT(ctx context.Context, t *adopt.Toolchain, o adopt.Options) (string, error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	return adopt.GOROOT(ctx, t, o)
}

// valued are the flags of go run and go install that may have their value in the next argument.
var valued = []string{
	"C", "asmflags", "buildmode", "compiler", "covermode", "coverpkg", "exec", "gccgoflags", "gcflags",
	"installsuffix", "ldflags", "mod", "modfile", "overlay", "p", "pgo", "pkgdir", "tags", "toolexec",
}

// atVersion returns the flags and the packages for a go install of the same packages as a go command,
// and none if that is not go run or go install, or has no version. The current module does not
// choose that version, nor the version of Go that the package needs.
func atVersion(args []string) (flags, packages []string) {
	if len(args) == 0 || args[0] != "install" && args[0] != "run" {
		return nil, nil
	}
	i := 1
	for i < len(args) && strings.HasPrefix(args[i], "-") {
		end := i + 1
		name := strings.TrimLeft(args[i], "-")
		if slices.Contains(valued, name) {
			end = min(i+2, len(args))
		}
		if name, _, _ := strings.Cut(name, "="); name != "exec" {
			flags = append(flags, args[i:end]...)
		}
		i = end
	}
	packages = args[i:]
	if args[0] == "run" {
		packages = packages[:min(1, len(packages))] // the others are the program's arguments
	}
	if !slices.ContainsFunc(packages, func(p string) bool { return strings.Contains(p, "@") }) {
		return nil, nil
	}
	return flags, packages
}

// needsGo matches the go command's message that a package needs a newer version of Go.
var needsGo = regexp.MustCompile(`requires go >= ([0-9][0-9a-z.]*) \(running go`)

// needs returns the name of the toolchain that the packages need if it is newer than that of goroot,
// and "" if it is not, or if that cannot be found out. It lets the go command load the packages and
// build nothing.
func (g *goTool) needs(ctx context.Context, goroot string, env []string) string {
	flags, packages := atVersion(g.args)
	if packages == nil {
		return ""
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	cmd := exec.CommandContext(ctx, goBinary(goroot), slices.Concat([]string{"install"}, flags, []string{"-n"}, packages)...)
	cmd.Env = adopt.Environ(env, goroot)
	text, err := cmd.CombinedOutput()
	m := needsGo.FindSubmatch(text)
	if err == nil || m == nil {
		return ""
	}
	version := string(m[1])
	if strings.Count(version, ".") == 1 && strings.Trim(version, "0123456789.") == "" {
		version += ".0"
	}
	return "go" + version
}

func (g *goTool) command(ctx context.Context, goroot string, env []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, goBinary(goroot), g.args...)
	cmd.Env = adopt.Environ(env, goroot)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd
}

func goBinary(goroot string) string { return filepath.Join(goroot, "bin", "go"+exeSuffix) }

// exitOf returns the exit status of a command that has printed why it failed.
func exitOf(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		return exitStatus(exit.ExitCode())
	}
	return err
}

// builds reports whether the go command builds something.
func (g *goTool) builds() bool {
	return slices.ContainsFunc(g.args[:min(3, len(g.args))], func(arg string) bool {
		return slices.Contains([]string{"build", "install", "run", "test"}, arg)
	})
}

// changeDir returns the directory of the flag -C, which is the first argument, or the first
// one after the command's name.
func changeDir(args []string) string {
	for i, arg := range args[:min(2, len(args))] {
		arg, isFlag := strings.CutPrefix(arg, "-")
		arg = strings.TrimPrefix(arg, "-")
		value, found := strings.CutPrefix(arg, "C=")
		switch {
		case isFlag && found:
			return value
		case isFlag && arg == "C" && i+1 < len(args):
			return args[i+1]
		}
	}
	return ""
}

// exec replaces this process by the go command of the second GOROOT, if the system can do that.
func (g *goTool) exec(ctx context.Context, goroot string, env []string) error {
	path := goBinary(goroot)
	err := replaceProcess(path, append([]string{"go"}, g.args...), adopt.Environ(env, goroot))
	if !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("%s: %w", path, err)
	}
	return exitOf(g.command(ctx, goroot, env).Run())
}
