// Kstatus reads Kubernetes objects as a stream of JSON and prints a line for each: what Flux's library makes of it.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func main() {
	if err := read(json.NewDecoder(os.Stdin)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func read(objects *json.Decoder) error {
	for {
		var bytes json.RawMessage
		if err := objects.Decode(&bytes); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		// As a client decodes them: whole numbers stay whole.
		var object unstructured.Unstructured
		if err := object.UnmarshalJSON(bytes); err != nil {
			return err
		}
		result, err := status.Compute(&object)
		if err != nil {
			return err
		}
		fmt.Println(result.Status)
	}
}
