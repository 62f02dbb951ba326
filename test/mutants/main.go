// Mutants shows that the tests notice what they are there to notice. Each patch
// beside it is a fault; Mutants builds the tests with it and demands that those
// which the patch names fail.
//
//	go run ./test/mutants [-run regexp] [-j 3]
//
// from the root of the module. A mutant is killed if every test that it names
// passes without the fault and fails, alone, with it: by a failure, a panic, or
// its timeout. Mutants exits with 1 if one survives, does not compile, or no
// longer applies, and says which.
//
// Nothing in the tree is changed: patched copies of files are put in their place
// by the go command's -overlay, so that only what depends on them is compiled
// anew.
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
	pattern := flag.String("run", "", "only the patches whose name matches this `regexp`")
	// One more than CI has processors: many mutants hang until their time is over.
	jobs := flag.Int("j", 3, "mutants beside each other")
	dir := flag.String("patches", filepath.Join("test", "mutants"), "where the patches are")
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
