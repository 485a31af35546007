package sweep

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/cmd/gmemtop/internal/exit"
)

func TestRowsGoToAFileOrToTheFolderOfTheParts(t *testing.T) {
	parts := filepath.Join(t.TempDir(), "all", "parts")
	for _, c := range []struct {
		to            Output
		want, mistake string
	}{
		{to: Output{File: "x.parquet"}, want: "x.parquet.part"},
		{to: Output{Shard: "2/3", Parts: parts}, want: filepath.Join(parts, journalName(2, 3))},
		{to: Output{}, mistake: "-o sweep.parquet"},
		{to: Output{File: "x.parquet", Parts: parts}, mistake: "--parts is for --shard"},
		{to: Output{Shard: "2/3"}, mistake: "name the folder"},
		{to: Output{Shard: "2/3", Parts: parts, File: "x.parquet"}, mistake: "-o is for --merge"},
		{to: Output{Shard: "4/3", Parts: parts}, mistake: "is not a part"},
	} {
		got, err := c.to.Journal(&Options{})
		switch {
		case c.mistake == "" && (err != nil || got != c.want):
			t.Errorf("%+v: %q, %v", c.to, got, err)
		case c.mistake != "" && (!exit.IsMistake(err) || !strings.Contains(err.Error(), c.mistake)):
			t.Errorf("%+v: %v", c.to, err)
		}
	}
	if info, err := os.Stat(parts); err != nil || !info.IsDir() {
		t.Errorf("the folder for the parts: %v", err)
	}
}

func TestPartsAreMergedIntoAFile(t *testing.T) {
	for to, ok := range map[Output]bool{
		{File: "x.parquet"}: true, {}: false, {File: "x.parquet", Shard: "1/2"}: false,
		{File: "x.parquet", Parts: "parts"}: false,
	} {
		if err := to.CheckMerge(); (err == nil) != ok || !ok && !exit.IsMistake(err) {
			t.Errorf("%+v: %v", to, err)
		}
	}
}
