package metrics

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Register makes a meter observe this process's SDP metrics at each export. The durations of dials
// are two counters, their number and their sum, because OpenTelemetry has no observable histogram.
func Register(meter metric.Meter) (metric.Registration, error) {
	observables := make([]metric.Observable, 0, len(instruments)+2)
	observers := make([]metric.Float64Observable, len(instruments))
	for i, in := range instruments {
		var err error
		if in.counter {
			observers[i], err = meter.Float64ObservableCounter(in.otel, metric.WithUnit(in.unit), metric.WithDescription(in.help))
		} else {
			observers[i], err = meter.Float64ObservableUpDownCounter(in.otel, metric.WithUnit(in.unit), metric.WithDescription(in.help))
		}
		if err != nil {
			return nil, err
		}
		observables = append(observables, observers[i])
	}
	dials, err := meter.Int64ObservableCounter("sdp.dials", metric.WithUnit("{dial}"),
		metric.WithDescription("Dials that returned a connection, by what they returned."))
	if err != nil {
		return nil, err
	}
	time, err := meter.Float64ObservableCounter("sdp.dials.time", metric.WithUnit("s"),
		metric.WithDescription("How long these Dials took together."))
	if err != nil {
		return nil, err
	}
	return meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := take()
		for i, in := range instruments {
			for _, v := range in.read(&s) {
				o.ObserveFloat64(observers[i], v.n, metric.WithAttributes(attributes(in.attributes, v.attributes)...))
			}
		}
		for result, h := range dialTimes(&s) {
			of := metric.WithAttributes(attribute.String("sdp.result", result))
			o.ObserveInt64(dials, int64(h.Count), of)
			o.ObserveFloat64(time, h.Sum.Seconds(), of)
		}
		return nil
	}, append(observables, dials, time)...)
}

// attributes returns a value's attributes, with names in the namespace that OpenTelemetry wants.
func attributes(names, values []string) []attribute.KeyValue {
	all := make([]attribute.KeyValue, len(values))
	for i := range values {
		all[i] = attribute.String("sdp."+names[i], values[i])
	}
	return all
}
