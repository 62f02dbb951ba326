package metrics

import (
	"context"
	"errors"
	"reflect"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Register makes a meter observe this process's SDP metrics at each export. A meter that is registered already
// is an error, because all values would be doubled. A provider returns the same meter for the same name.
func Register(meter metric.Meter) (*Registration, error) {
	r := &Registration{key: meter}
	if reflect.ValueOf(meter).Kind() != reflect.Pointer {
		r.key = r // such meters, for example noop's, have no identity
	}
	if _, already := registered.LoadOrStore(r.key, r); already {
		return nil, errors.New("metrics: the meter is registered already")
	}
	if err := r.register(meter); err != nil {
		registered.Delete(r.key)
		return nil, err
	}
	return r, nil
}

// registered maps the meters to their registrations.
var registered sync.Map

// Registration is a meter that observes the metrics of this process, until Unregister is called.
type Registration struct {
	metric.Registration
	key   any // in registered
	dials metric.Float64Histogram
	ended atomic.Bool
}

func (r *Registration) register(meter metric.Meter) error {
	observables := make([]metric.Observable, 0, len(instruments))
	observers := make([]metric.Float64Observable, len(instruments))
	for i, in := range instruments {
		var err error
		if in.counter {
			observers[i], err = meter.Float64ObservableCounter(in.otel, metric.WithUnit(in.unit), metric.WithDescription(in.help))
		} else {
			observers[i], err = meter.Float64ObservableUpDownCounter(in.otel, metric.WithUnit(in.unit), metric.WithDescription(in.help))
		}
		if err != nil {
			return err
		}
		observables = append(observables, observers[i])
	}
	var err error
	r.dials, err = meter.Float64Histogram("sdp.dial.duration", metric.WithUnit("s"),
		metric.WithDescription("How long Dials took, by what they returned."),
		metric.WithExplicitBucketBoundaries(dialBounds...))
	if err != nil {
		return err
	}
	r.Registration, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := take()
		for i, in := range instruments {
			for _, v := range in.read(&s) {
				o.ObserveFloat64(observers[i], v.n, metric.WithAttributes(attributes(in.attributes, v.attributes)...))
			}
		}
		return nil
	}, observables...)
	return err
}

// MeasureDials returns a context with which the Dials of an [sdp.Dialer] are recorded in sdp.dial.duration.
func (r *Registration) MeasureDials(ctx context.Context) context.Context {
	return withDialTimes(ctx, func(result string, seconds float64) {
		if !r.ended.Load() {
			r.dials.Record(context.Background(), seconds, results[result])
		}
	})
}

// results has the attributes of each result of a Dial.
var results = map[string]metric.RecordOption{
	resultSDP: metric.WithAttributeSet(attribute.NewSet(attribute.String("sdp.result", resultSDP))),
	resultTCP: metric.WithAttributeSet(attribute.NewSet(attribute.String("sdp.result", resultTCP))),
}

// Unregister implements metric.Registration.
func (r *Registration) Unregister() error {
	r.ended.Store(true)
	err := r.Registration.Unregister()
	if err == nil {
		registered.CompareAndDelete(r.key, r)
	}
	return err
}

// attributes returns a value's attributes, with names in the namespace that OpenTelemetry wants.
func attributes(names, values []string) []attribute.KeyValue {
	all := make([]attribute.KeyValue, len(values))
	for i := range values {
		all[i] = attribute.String("sdp."+names[i], values[i])
	}
	return all
}
