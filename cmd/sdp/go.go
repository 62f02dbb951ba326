package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/gosdp/gosdp/internal/adopt"
)

const goHelp = `
Runs the go command with the arguments, in a copy of the Go installation whose
package net uses SDP. Every program, test and library is built with it as it is:
TCP connections between programs of one host move to shared memory when that
pays. Types, errors and options are those of package net.

The copy is made in the user's cache directory when it is first needed. The
version of Go is the one that the go command would use, so go.mod's toolchain
line counts. Programs for systems other than Linux are built without SDP, and a
line says so; on Linux, architectures other than amd64 and arm64 are refused.
Commands that build nothing, such as get and mod, are those of the installation.

"sdp build", "sdp test", "sdp run" and "sdp install" stand for "sdp go build"
and so on. "sdp go -iwarp build", with the flag before the go command's name,
adds SDP over RDMA with its device iwarp. -verbs also adds the device for RDMA
hardware, which needs cgo. They have no short form, and make programs larger.

docs/adoption.md has the limits, and what environment variables do at run time.`

// goCommands returns "sdp go" and its shorthands.
func goCommands() []*command {
	cs := []*command{{
		name: "go", usage: "[-iwarp] [-verbs] <go command> [arguments]",
		short: "run a go command that builds programs with SDP",
		long:  goHelp,
		run:   runGo,
	}}
	for _, name := range []string{"build", "test", "run", "install"} {
		cs = append(cs, &command{
			name: name, usage: "[arguments]",
			short: "short for sdp go " + name,
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
		return errors.New("missing go command, such as sdp go build")
	}
	g := goTool{options: options, args: args}
	return g.run(context.Background())
}

// goOptions parses the flags before the go command's name. The others belong to the go command.
func goOptions(args []string) (adopt.Options, []string) {
	o := adopt.Options{Cache: os.Getenv("SDP_GOCACHE")}
	flags := map[string]*bool{"iwarp": &o.RDMA, "verbs": &o.Verbs}
	for len(args) > 0 {
		name, value, _ := strings.Cut(strings.TrimLeft(args[0], "-"), "=")
		on, err := strconv.ParseBool(cmp.Or(value, "true"))
		if !strings.HasPrefix(args[0], "-") || flags[name] == nil || err != nil {
			break
		}
		*flags[name], args = on, args[1:]
	}
	return o, args
}

// goTool is one call of the go command.
type goTool struct {
	options adopt.Options
	args    []string
	dir     string // where it works, as far as -C says

	name        string   // of the go command: "build"
	flags, rest []string // of args: flags with their values, and what follows them
}

// run runs the go command. It returns an exitStatus if that command fails.
func (g *goTool) run(ctx context.Context) error {
	g.dir = changeDir(g.args)
	g.name, g.flags, g.rest = takeApart(g.args)
	env := os.Environ()
	if slices.Contains(unbuilt, g.name) {
		path, err := exec.LookPath("go")
		if err != nil {
			return err
		}
		return g.exec(ctx, path, env)
	}
	t, err := adopt.Ask(ctx, "go", g.dir, nil)
	if err != nil {
		return err
	}
	if err := checkOverlay(g.overlay(t.GOFLAGS), g.dir, t.First()); err != nil {
		return err
	}
	if !t.Hooked() && g.builds() {
		if t.GOOS == "linux" {
			return fmt.Errorf("linux/%s is not supported, only %s; use go instead of sdp go to build without SDP", t.GOARCH, strings.Join(adopt.Architectures, " and "))
		}
		fmt.Fprintf(os.Stderr, "sdp: SDP is not supported on %s; building without it\n", t.GOOS)
	}
	goroot, err := makeGOROOT(ctx, t, g.options)
	if err != nil {
		return err
	}
	change := ""
	if needs := g.needs(ctx, goroot, env); needs != "" {
		change = t.Change(needs)
	}
	if change == "" {
		return g.exec(ctx, goBinary(goroot), adopt.Environ(env, goroot))
	}
	// The go command would change to the toolchain that the package's go.mod asks for.
	if t, err = adopt.Ask(ctx, "go", g.dir, append(env, "GOTOOLCHAIN="+change)); err != nil {
		return err
	}
	if goroot, err = makeGOROOT(ctx, t, g.options); err != nil {
		return err
	}
	return g.exec(ctx, goBinary(goroot), adopt.Environ(env, goroot))
}

// makeGOROOT returns the second GOROOT. The user may interrupt that, and the go command itself deals
// with signals afterwards.
func makeGOROOT(ctx context.Context, t *adopt.Toolchain, o adopt.Options) (string, error) {
	if o.Verbs && t.CGOEnabled != "1" {
		return "", errors.New("-verbs needs cgo: set CGO_ENABLED=1")
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	return adopt.GOROOT(ctx, t, o)
}

// unbuilt are go commands that build nothing. The go command of the installation runs them, because it
// may change to another version, as go get does if a module asks for that.
var unbuilt = []string{"bug", "clean", "doc", "fmt", "get", "help", "mod", "telemetry", "work"}

// valued are the flags of go build, go run and go install that may have their value in the next argument.
var valued = []string{
	"C", "asmflags", "buildmode", "compiler", "covermode", "coverpkg", "exec", "gccgoflags", "gcflags",
	"installsuffix", "ldflags", "mod", "modfile", "o", "overlay", "p", "pgo", "pkgdir", "tags", "toolexec",
}

// takeApart returns the name of the go command, its flags with their values, and what follows them.
// The flag -C may also come before the name.
func takeApart(args []string) (name string, flags, rest []string) {
	before, rest := cutFlags(args)
	if len(rest) == 0 {
		return "", before, nil
	}
	name = rest[0]
	flags, rest = cutFlags(rest[1:])
	return name, slices.Concat(before, flags), rest
}

// cutFlags returns the flags at the beginning, with their values, and what follows them.
func cutFlags(args []string) (flags, rest []string) {
	i := 0
	for i < len(args) && strings.HasPrefix(args[i], "-") {
		i += flagLen(args[i])
	}
	i = min(i, len(args))
	return args[:i], args[i:]
}

// flagLen returns how many arguments a flag has, with itself.
func flagLen(flag string) int {
	if slices.Contains(valued, strings.TrimLeft(flag, "-")) {
		return 2
	}
	return 1
}

// atVersion returns the flags and the packages for a go install of the same packages as the go
// command, and none if that is not go run or go install, or has no version. The current module does
// not choose that version, nor the version of Go that the package needs.
func (g *goTool) atVersion() (flags, packages []string) {
	if g.name != "install" && g.name != "run" {
		return nil, nil
	}
	for i := 0; i < len(g.flags); i += flagLen(g.flags[i]) {
		if name, _, _ := strings.Cut(strings.TrimLeft(g.flags[i], "-"), "="); name != "exec" {
			flags = append(flags, g.flags[i:min(i+flagLen(g.flags[i]), len(g.flags))]...)
		}
	}
	packages = g.rest
	if g.name == "run" {
		packages = packages[:min(1, len(packages))] // the others are the program's arguments
	}
	if !slices.ContainsFunc(packages, func(p string) bool { return strings.Contains(p, "@") }) {
		return nil, nil
	}
	return flags, packages
}

// overlay returns the file that the flag -overlay names, "" if there is none.
func (g *goTool) overlay(goflags string) string {
	args := strings.Fields(goflags)
	for i, arg := range args {
		args[i] = strings.Trim(arg, `'"`)
	}
	args = append(args, g.flags...) // has precedence
	if g.name == "test" {           // whose flags may follow the packages
		ours, _, _ := strings.Cut(strings.Join(g.rest, "\x00")+"\x00", "\x00-args\x00")
		args = append(args, strings.Split(ours, "\x00")...)
	}
	file := ""
	for i, arg := range args {
		name, value, found := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		switch {
		case name != "overlay" || !strings.HasPrefix(arg, "-"):
		case found:
			file = value
		case i+1 < len(args):
			file = args[i+1]
		}
	}
	return file
}

// checkOverlay returns an error if an overlay replaces files of the Go installation. They are not those
// that are compiled, so the go command would ignore that. If the overlay cannot be read, the go command
// says so.
func checkOverlay(file, dir, installation string) error {
	if file == "" {
		return nil
	}
	in := func(name string) string { // as a go command in dir understands it
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		name, _ = filepath.Abs(name)
		return name
	}
	text, err := os.ReadFile(in(file))
	var overlay struct{ Replace map[string]string }
	if err != nil || json.Unmarshal(text, &overlay) != nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(overlay.Replace)) {
		if rel, err := filepath.Rel(installation, in(name)); err == nil && filepath.IsLocal(rel) {
			return fmt.Errorf("overlay %s replaces %s, which sdp does not compile: name the file in the directory that \"sdp go env GOROOT\" prints", file, name)
		}
	}
	return nil
}

// needsGo matches the go command's message that a package needs a newer version of Go.
var needsGo = regexp.MustCompile(`requires go >= ([0-9][0-9a-z.]*) \(running go`)

// needs returns the name of the toolchain that the packages need if it is newer than that of goroot,
// and "" if it is not, or if that cannot be found out. It lets the go command load the packages and
// build nothing.
func (g *goTool) needs(ctx context.Context, goroot string, env []string) string {
	flags, packages := g.atVersion()
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
	return slices.Contains([]string{"build", "install", "run", "test"}, g.name)
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

// exec replaces this process by a go command, if the system can do that.
func (g *goTool) exec(ctx context.Context, path string, env []string) error {
	err := replaceProcess(path, append([]string{"go"}, g.args...), env)
	if !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("%s: %w", path, err)
	}
	cmd := exec.CommandContext(ctx, path, g.args...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, os.Stdin, os.Stdout, os.Stderr
	return exitOf(cmd.Run())
}
