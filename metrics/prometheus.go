package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
)

// Collector is a [prometheus.Collector] of this process's SDP metrics. It is safe for concurrent use.
type Collector struct {
	descs []*prometheus.Desc // of instruments
	dials *prometheus.HistogramVec
}

var _ prometheus.Collector = (*Collector)(nil)

// NewCollector returns a collector of this process's SDP metrics.
func NewCollector() *Collector {
	c := &Collector{descs: make([]*prometheus.Desc, len(instruments))}
	for i, in := range instruments {
		c.descs[i] = prometheus.NewDesc(in.prometheus, in.help, in.attributes, nil)
	}
	c.dials = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "sdp_dial_duration_seconds", Help: "How long Dials took, by what they returned.", Buckets: dialBounds,
	}, []string{"result"})
	for _, result := range []string{resultSDP, resultTCP} {
		c.dials.WithLabelValues(result) // a monitor does not notice the first event of a new series
	}
	return c
}

// MeasureDials returns a context with which the Dials of an [sdp.Dialer] are counted in sdp_dial_duration_seconds.
func (c *Collector) MeasureDials(ctx context.Context) context.Context {
	return withDialTimes(ctx, func(result string, seconds float64) {
		c.dials.WithLabelValues(result).Observe(seconds)
	})
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		to <- d
	}
	c.dials.Describe(to)
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	s := take()
	for i, in := range instruments {
		kind := prometheus.GaugeValue
		if in.counter {
			kind = prometheus.CounterValue
		}
		for _, v := range in.read(&s) {
			to <- prometheus.MustNewConstMetric(c.descs[i], kind, v.n, v.attributes...)
		}
	}
	c.dials.Collect(to)
}
