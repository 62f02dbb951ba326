package metrics

import (
	"context"
	"errors"
	"reflect"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/gosdp/gosdp/sdp"
	"github.com/gosdp/gosdp/sdp/stats"
)

// Register makes a meter observe this process's SDP metrics at each export, and record the
// duration of each Dial. It switches the measurement of Dials on, until the registration is
// ended; see [sdp.OnDial]. A meter that is registered already is an error, because all values
// would be doubled. A provider returns the same meter for the same name.
func Register(meter metric.Meter) (metric.Registration, error) {
	r := &registration{key: meter}
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

// registration ends the recording of Dials together with the callback.
type registration struct {
	metric.Registration
	key    any // in registered
	remove func()
}

func (r *registration) register(meter metric.Meter) error {
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
	dials, err := meter.Float64Histogram("sdp.dial.duration", metric.WithUnit("s"),
		metric.WithDescription("How long Dials took, by what they returned."),
		metric.WithExplicitBucketBoundaries(bounds()...))
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
	if err != nil {
		return err
	}
	results := make(map[string]metric.RecordOption)
	for _, result := range []string{"sdp", "tcp"} {
		results[result] = metric.WithAttributeSet(attribute.NewSet(attribute.String("sdp.result", result)))
	}
	r.remove = sdp.OnDial(func(e stats.Dial) {
		switch {
		case e.Err != nil: // sdp.dials.failed
		case e.Device != "":
			dials.Record(context.Background(), e.Duration.Seconds(), results["sdp"])
		default:
			dials.Record(context.Background(), e.Duration.Seconds(), results["tcp"])
		}
	})
	return nil
}

// Unregister implements metric.Registration.
func (r *registration) Unregister() error {
	r.remove()
	err := r.Registration.Unregister()
	if err == nil {
		registered.CompareAndDelete(r.key, r)
	}
	return err
}

// bounds returns the upper bounds of the buckets, in seconds.
func bounds() []float64 {
	var all []float64
	for _, b := range sdp.SetupStats().DialTimes.Buckets {
		all = append(all, b.UpTo.Seconds())
	}
	return all
}

// attributes returns a value's attributes, with names in the namespace that OpenTelemetry wants.
func attributes(names, values []string) []attribute.KeyValue {
	all := make([]attribute.KeyValue, len(values))
	for i := range values {
		all[i] = attribute.String("sdp."+names[i], values[i])
	}
	return all
}
