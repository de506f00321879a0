package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReadTrace(t *testing.T) {
	for name, c := range map[string]struct {
		trace string
		want  []request
	}{
		"as it is published": {
			trace: "TIMESTAMP,ContextTokens,GeneratedTokens\r\n" +
				"2023-11-16 18:15:46.6805900,374,44\r\n2023-11-16 18:15:47.6805901,396,0\r\n",
			want: []request{at(0, 0.2, 4.6), at(1.0000001, 1.2000001, 1.2000001)},
		},
		"as the next year's": {
			trace: "TIMESTAMP,ContextTokens,GeneratedTokens\n" +
				"2024-05-10 00:00:00.009930+00:00,2162,5\n2024-05-10 02:00:00+02:00,2162,5\n",
			want: []request{at(0, 0.2, 0.7), at(0.00993, 0.20993, 0.70993)},
		},
		"as a spreadsheet saves it": {
			trace: "\ufeffTIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:15:46,374,44\r\n",
			want:  []request{at(0, 0.2, 4.6)},
		},
		"unsorted, other columns": {
			trace: "GeneratedTokens,model,TIMESTAMP,ContextTokens\n" +
				"30,\"a,b\",2023-11-17 00:00:01,7\n10,c,2023-11-16 23:59:59,7\n20,d,2023-11-17 00:00:01,7\n",
			want: []request{at(0, 0.2, 1.2), at(2, 2.2, 5.2), at(2, 2.2, 4.2)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			requests, err := readTrace(strings.NewReader(c.trace), 10, 200*time.Millisecond)
			require.NoError(t, err)
			require.Equal(t, c.want, requests)
		})
	}
}

func TestReadTraceErrors(t *testing.T) {
	const good = columns + "\n2023-11-16 18:15:46.6805900,374,44\n"
	for trace, want := range map[string]string{
		"":                                                    "empty, want a line TIMESTAMP,ContextTokens,GeneratedTokens",
		"TIMESTAMP,GeneratedTokens\n":                         "line 1: no column ContextTokens, want TIMESTAMP,ContextTokens,GeneratedTokens",
		columns + "\n":                                        "no requests",
		good + "\n2023-11-16,1,2\n":                           `line 4: TIMESTAMP is "2023-11-16", want one like 2023-11-16 18:15:46.6805900`,
		good + "2023-11-16 18:15:47,x,2\n":                    `line 3: ContextTokens is "x", want a whole number`,
		good + "2023-11-16 18:15:47,1,-2\n":                   `line 3: GeneratedTokens is "-2", want a whole number`,
		good + "2023-11-16 18:15:47,1\n":                      "record on line 3: wrong number of fields",
		good + "2023-11-16 18:15:47,1,\"\n":                   `parse error on line 3, column 25: extraneous or missing " in quoted-field`,
		good + "1923-11-16 18:15:47,1,2\n":                    "line 3: more than a year from the first request",
		good + "2023-11-16 18:15:47,1,400000000\n":            "line 3: 400000000 tokens take more than a year",
		good + "2023-11-16 18:15:47,1,99999999999999999999\n": `line 3: GeneratedTokens is "99999999999999999999", want a whole number`,
	} {
		_, err := readTrace(strings.NewReader(trace), 10, 0)
		require.EqualError(t, err, want)
	}
}
