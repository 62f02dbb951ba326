package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gosdp/gosdp/sdp"
)

// NewCollector returns a collector of this process's SDP metrics. It is safe for concurrent
// use. It switches the measurement of how long Dials take on; see [sdp.MeasureDials].
func NewCollector() prometheus.Collector {
	sdp.MeasureDials(true)
	c := &collector{descs: make([]*prometheus.Desc, len(instruments))}
	for i, in := range instruments {
		c.descs[i] = prometheus.NewDesc(in.prometheus, in.help, in.attributes, nil)
	}
	c.dials = prometheus.NewDesc("sdp_dial_duration_seconds",
		"How long Dials took, by what they returned.", []string{"result"}, nil)
	return c
}

type collector struct {
	descs []*prometheus.Desc // of instruments
	dials *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		to <- d
	}
	to <- c.dials
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
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
	for result, h := range dialTimes(&s) {
		buckets := make(map[float64]uint64, len(h.Buckets))
		for _, b := range h.Buckets {
			buckets[b.UpTo.Seconds()] = b.Count
		}
		to <- prometheus.MustNewConstHistogram(c.dials, h.Count, h.Sum.Seconds(), buckets, result)
	}
}
