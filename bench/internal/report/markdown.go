package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/gosdp/gosdp/bench/internal/harness"
)

// WriteMarkdown writes the report as Markdown. Pictures are names of files in the
// same directory.
func (r *Report) WriteMarkdown(out io.Writer, targets []Target, pictures []string, changes []Change) error {
	var b strings.Builder
	m := r.Machine
	fmt.Fprintf(&b, "# Benchmark report\n\n")
	fmt.Fprintf(&b, "| | |\n|---|---|\n| processors | %d × %s |\n| kernel | %s (%s) |\n| Go | %s |\n| commit | %s |\n| time | %s |\n",
		m.Processors, m.Processor, m.Kernel, m.System, m.Go, m.Commit, m.Time.Format("2006-01-02 15:04 UTC"))
	for _, row := range r.Rows {
		if row.Case == LineCase {
			fmt.Fprintf(&b, "| cache line between two processors and back, %s | %s µs (%s to %s), %d samples |\n",
				row.Distance, number(row.Median), number(row.Lo), number(row.Hi), len(row.Values))
		}
	}
	fmt.Fprintf(&b, "\n%s\n", explanation)

	r.writeContenders(&b)
	r.writeTargets(&b, targets)
	if changes != nil {
		b.WriteString("\n## Changes since the earlier report\n\n```\n")
		if err := WriteChanges(&b, changes); err != nil {
			return err
		}
		b.WriteString("```\n")
	}
	if len(pictures) > 0 {
		b.WriteString("\n## Charts\n")
		for _, file := range pictures {
			fmt.Fprintf(&b, "\n![%s](%s)\n", strings.TrimSuffix(file, ".png"), file)
		}
	}
	b.WriteString("\n## Rows\n")
	r.writeRows(&b)
	r.writeRounds(&b)
	_, err := io.WriteString(out, b.String())
	return err
}

const explanation = "Each number is the median over the rounds, with the 10th and 90th percentiles in brackets. " +
	"× tcp is the median of the rounds' ratios to `tcp`, × unix and × limit of those to `unix` and `limit`: below 1 is better for times, costs and memory, above 1 for rates. " +
	"Processor time is the sum of both processes."

func (r *Report) writeContenders(b *strings.Builder) {
	b.WriteString("\n## Contenders\n\n| | |\n|---|---|\n")
	for _, name := range r.contenders() {
		if c, err := harness.Find(BaseName(name)); err == nil {
			fmt.Fprintf(b, "| `%s` | %s |\n", name, c.About)
		}
	}
	for _, a := range r.Absent {
		fmt.Fprintf(b, "| `%s` | not measured: %s |\n", a.Contender, a.Why)
	}
	for _, f := range r.Failed {
		fmt.Fprintf(b, "\n`%s` failed in %s: %s\n", f.Contender, f.Case, f.Why)
	}
}

// BaseName returns a contender's name without the suffix that numbers repetitions.
func BaseName(name string) string {
	name, _, _ = strings.Cut(name, "#")
	return name
}

// contenders returns the names of the contenders that have rows, in order.
func (r *Report) contenders() (names []string) {
	seen := map[string]bool{LineContender: true}
	for _, row := range r.Rows {
		if !seen[row.Contender] {
			seen[row.Contender] = true
			names = append(names, row.Contender)
		}
	}
	return names
}

func (r *Report) writeTargets(b *strings.Builder, targets []Target) {
	outcomes := r.Judge(targets)
	if len(outcomes) == 0 {
		return
	}
	b.WriteString("\n## Targets\n\n| contender | case | metric | distance | must | aim | measured | |\n|---|---|---|---|---|---|---|---|\n")
	for _, o := range outcomes {
		aim := ""
		if o.Aim != nil {
			aim = o.Direction() + " " + o.Aim.String()
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s %s | %s | %s | %s |\n",
			o.Contender, o.Load.Name(), o.Metric, o.Distance, o.Direction(), o.Must, aim, o.Value(), o.Verdict())
	}
}

// writeRows writes a table for each kind of case, with a column for each metric.
func (r *Report) writeRows(b *strings.Builder) {
	var kind harness.Kind
	var metrics []string
	last := ""
	for _, row := range r.Rows {
		if row.Case == LineCase {
			continue
		}
		if row.Case != kind {
			kind = row.Case
			metrics = r.metricsOf(kind)
			fmt.Fprintf(b, "\n### %s\n\n| case | contender | distance |", kind)
			for _, m := range metrics {
				fmt.Fprintf(b, " %s |", m)
			}
			b.WriteString("\n|---|---|---|" + strings.Repeat("---:|", len(metrics)) + "\n")
		}
		// Rows are per metric. Write a line of the table at the first of its metrics.
		line := fmt.Sprintf("| %s | `%s` | %s |", row.Load().Name(), row.Contender, row.Distance)
		if row.Metric != r.firstMetric(row) || line == last {
			continue
		}
		last = line
		b.WriteString(line)
		for _, m := range metrics {
			cell, ok := r.Find(row.Load(), row.Contender, row.Distance, m)
			if !ok {
				b.WriteString(" |")
				continue
			}
			fmt.Fprintf(b, " %s (%s – %s)", number(cell.Median), number(cell.Lo), number(cell.Hi))
			if cell.Ratio != nil {
				fmt.Fprintf(b, " %s × tcp", number(*cell.Ratio))
			}
			if cell.Unix != nil {
				fmt.Fprintf(b, ", %s × unix", number(*cell.Unix))
			}
			if cell.Limit != nil {
				fmt.Fprintf(b, ", %s × limit", number(*cell.Limit))
			}
			b.WriteString(" |")
		}
		b.WriteString("\n")
	}
}

// metricsOf returns the names of the metrics of a kind of case.
func (r *Report) metricsOf(kind harness.Kind) (names []string) {
	seen := map[string]bool{}
	for _, row := range r.Rows {
		if row.Case == kind && !seen[row.Metric] {
			seen[row.Metric] = true
			names = append(names, row.Metric)
		}
	}
	return names
}

// firstMetric returns the metric of the first row with the same case, contender and distance.
func (r *Report) firstMetric(like Row) string {
	for _, row := range r.Rows {
		if row.Load() == like.Load() && row.Contender == like.Contender && row.Distance == like.Distance {
			return row.Metric
		}
	}
	return ""
}

func (r *Report) writeRounds(b *strings.Builder) {
	b.WriteString("\n## Rounds\n\nA round is disturbed if other programs used more than ")
	fmt.Fprintf(b, "%.0f %% of the processors' time. Disturbed rounds are dropped and repeated ", 100*ForeignLimit)
	b.WriteString("while there is time; after that, the least disturbed ones are kept.\n\n| case | kept | of them disturbed | dropped | foreign, median |\n|---|---:|---:|---:|---:|\n")
	for _, k := range r.Kept {
		fmt.Fprintf(b, "| %s | %d | %d | %d | %.0f %% |\n", k.Case, k.Rounds, k.Disturbed, k.Dropped, 100*k.Foreign)
	}
}
