package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gosdp/gosdp/bench/internal/report"
)

// The files of a report.
const (
	markdownFile = "report.md"
	jsonFile     = "report.json"
)

// writeFiles writes the report's files into the directory.
func writeFiles(dir string, r *report.Report, targets []report.Target, changes []report.Change) error {
	pictures, err := r.Draw(dir)
	if err != nil {
		return err
	}
	markdown, err := os.Create(filepath.Join(dir, markdownFile))
	if err != nil {
		return err
	}
	err = r.WriteMarkdown(markdown, targets, pictures, changes)
	if err := errors.Join(err, markdown.Close()); err != nil {
		return err
	}
	raw, err := os.Create(filepath.Join(dir, jsonFile))
	if err != nil {
		return err
	}
	return errors.Join(r.WriteJSON(raw), raw.Close())
}

// readReport reads the JSON of an earlier run.
func readReport(file string) (*report.Report, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	r, err := report.Read(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}
