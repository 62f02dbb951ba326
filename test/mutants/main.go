// Mutants checks that the tests notice faults. Each patch in this directory introduces a
// fault. Mutants builds the tests with the fault and requires that the tests which the patch
// names fail.
//
//	go run ./test/mutants [-run regexp] [-j 3]
//
// from the root of the module. A mutant is killed if every test that it names passes without
// the fault and fails with it, by a failure, a panic or a timeout. Each test is run alone.
// Mutants exits with status 1 and names the mutants if any of them survives, does not compile
// or no longer applies.
//
// Mutants does not change the tree. The go command's -overlay replaces files by patched
// copies, so that only packages that depend on them are compiled again.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
)

func main() {
	pattern := flag.String("run", "", "test only the patches whose name matches this `regexp`")
	// One more than CI has processors, because many mutants hang until their timeout.
	jobs := flag.Int("j", 3, "number of mutants to test concurrently")
	dir := flag.String("patches", filepath.Join("test", "mutants"), "`directory` with the patches")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *dir, *pattern, *jobs); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, dir, pattern string, jobs int) error {
	chosen, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	mutants, err := load(dir, chosen)
	if err != nil {
		return err
	}
	temp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	lab := newLab(".", temp, os.Stdout)
	return lab.try(ctx, mutants, jobs)
}
