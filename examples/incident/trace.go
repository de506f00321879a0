package main

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	columns = "TIMESTAMP,ContextTokens,GeneratedTokens"
	maxTime = 366 * 24 * time.Hour // of a trace and of a request: a longer one has a mistake in it
)

// A request arrives, has its response head, and ends. All times are since the first arrival.
type request struct {
	at, head, end time.Duration
}

// readTrace reads requests from CSV: a line that names the columns, in any order and with others between them, and a line
// per request, of which TIMESTAMP and GeneratedTokens count. Timestamps are as in the Azure LLM inference traces, in UTC
// if they name no offset. Requests come back in the order of their arrival, whatever that of the lines. An error names
// the line.
func readTrace(r io.Reader, tokensPerSecond float64, firstToken time.Duration) ([]request, error) {
	rows := csv.NewReader(r)
	rows.ReuseRecord = true
	header, err := rows.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("empty, want a line " + columns)
	}
	if err != nil {
		return nil, err
	}
	header[0] = strings.TrimPrefix(header[0], "\ufeff") // a byte order mark, as spreadsheets write it
	var column [3]int                                   // of each name in columns
	for i, name := range strings.Split(columns, ",") {
		if column[i] = slices.Index(header, name); column[i] < 0 {
			return nil, fmt.Errorf("line 1: no column %s, want %s", name, columns)
		}
	}
	var requests []request
	var first time.Time
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		arrival, lasts, err := parseRow(row[column[0]], row[column[1]], row[column[2]], tokensPerSecond, firstToken)
		if len(requests) == 0 {
			first = arrival
		}
		at := arrival.Sub(first)
		if err == nil && at.Abs() > maxTime {
			err = errors.New("more than a year from the first request")
		}
		if err != nil {
			line, _ := rows.FieldPos(0)
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		requests = append(requests, request{at: at, head: at + firstToken, end: at + lasts})
	}
	if len(requests) == 0 {
		return nil, errors.New("no requests")
	}
	slices.SortStableFunc(requests, func(a, b request) int { return cmp.Compare(a.at, b.at) })
	for i, earliest := len(requests)-1, requests[0].at; i >= 0; i-- {
		r := &requests[i]
		r.at, r.head, r.end = r.at-earliest, r.head-earliest, r.end-earliest
	}
	return requests, nil
}

func parseRow(timestamp, contextTokens, generatedTokens string, tokensPerSecond float64, firstToken time.Duration) (
	arrival time.Time, lasts time.Duration, err error,
) {
	if arrival, err = time.Parse("2006-01-02 15:04:05", timestamp); err != nil { // a fraction may follow all the same
		if arrival, err = time.Parse("2006-01-02 15:04:05Z07:00", timestamp); err != nil {
			return arrival, 0, fmt.Errorf("TIMESTAMP is %q, want one like 2023-11-16 18:15:46.6805900", timestamp)
		}
	}
	if _, err := strconv.ParseUint(contextTokens, 10, 64); err != nil {
		return arrival, 0, fmt.Errorf("ContextTokens is %q, want a whole number", contextTokens)
	}
	tokens, err := strconv.ParseUint(generatedTokens, 10, 64)
	if err != nil {
		return arrival, 0, fmt.Errorf("GeneratedTokens is %q, want a whole number", generatedTokens)
	}
	seconds := float64(tokens) / tokensPerSecond
	if seconds > maxTime.Seconds() {
		return arrival, 0, fmt.Errorf("%d tokens take more than a year", tokens)
	}
	return arrival, firstToken + time.Duration(math.Round(seconds*float64(time.Second))), nil
}
