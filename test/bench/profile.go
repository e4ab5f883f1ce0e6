package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

const profileSeconds = 20

func (r *rig) profileCPU(ctx context.Context, m *manager, name string) func() error {
	if r.profiles == "" || m == nil {
		return func() error { return nil }
	}
	result := make(chan error, 1)
	go func() { result <- r.profile(ctx, m, name+".cpu", fmt.Sprintf("profile?seconds=%d", profileSeconds)) }()
	return func() error { return <-result }
}

func (r *rig) profileHeap(ctx context.Context, m *manager, name string) error {
	if r.profiles == "" {
		return nil
	}
	return r.profile(ctx, m, name+".heap", "heap")
}

func (r *rig) profile(ctx context.Context, m *manager, name, page string) error {
	body, err := m.get(ctx, "/debug/pprof/"+page)
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	if err := os.WriteFile(filepath.Join(r.profiles, r.label+"-"+name+".pprof"), body, 0o600); err != nil {
		return fmt.Errorf("save profile: %w", err)
	}
	return nil
}
