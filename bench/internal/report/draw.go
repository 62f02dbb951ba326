package report
func (r *Report) Draw(dir string) ([]string, error) { return nil, nil }
