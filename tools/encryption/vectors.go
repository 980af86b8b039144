// Encrypts values with the code of kube-apiserver, for the tests of tidings-encryption. Run by tools/encryption/record.
package main

import (
	"bytes"
	"context"
	"crypto/aes"
	"encoding/json"
	"os"

	"k8s.io/apiserver/pkg/storage/value"
	aestransformer "k8s.io/apiserver/pkg/storage/value/encrypt/aes"
	"k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2"
	kmstypes "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2/v2"
	"k8s.io/apiserver/pkg/storage/value/encrypt/secretbox"

	"google.golang.org/protobuf/proto"
)

type vector struct {
	Scheme string `json:"scheme"`
	Key    []byte `json:"key"`
	Path   string `json:"path"`
	Clear  []byte `json:"clear"`
	Stored []byte `json:"stored"`
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	ctx := context.Background()
	path := "/registry/secrets/default/s"
	bound := value.DefaultContext([]byte(path))
	var all []vector
	for _, clear := range [][]byte{[]byte("{}"), bytes.Repeat([]byte("0123456789abcdef"), 5), []byte("k8s\x00\x01")} {
		add := func(scheme string, key []byte, transformer value.Transformer) {
			sealed, err := transformer.TransformToStorage(ctx, clear, bound)
			check(err)
			prefix := "k8s:enc:" + scheme + ":v1:key1:"
			all = append(all, vector{scheme, key, path, clear, append([]byte(prefix), sealed...)})
		}
		for _, length := range []int{16, 24, 32} {
			key := bytes.Repeat([]byte{byte(length)}, length)
			block, err := aes.NewCipher(key)
			check(err)
			gcm, err := aestransformer.NewGCMTransformer(block)
			check(err)
			add("aesgcm", key, gcm)
			add("aescbc", key, aestransformer.NewCBCTransformer(block))
		}
		var key [32]byte
		copy(key[:], bytes.Repeat([]byte{5}, 32))
		add("secretbox", key[:], secretbox.NewSecretboxTransformer(key))

		seed := bytes.Repeat([]byte{9}, aestransformer.MinSeedSizeExtendedNonceGCM)
		extended, err := aestransformer.NewHKDFExtendedNonceGCMTransformer(seed)
		check(err)
		data, err := extended.TransformToStorage(ctx, clear, bound)
		check(err)
		object := &kmstypes.EncryptedObject{
			KeyID:                  "id1",
			EncryptedDEKSource:     []byte("sealed-by-kms"),
			EncryptedData:          data,
			Annotations:            map[string][]byte{"a.example.com": []byte("1")},
			EncryptedDEKSourceType: kmstypes.EncryptedDEKSourceType_HKDF_SHA256_XNONCE_AES_GCM_SEED,
		}
		check(kmsv2.ValidateEncryptedObject(object))
		stored, err := proto.Marshal(object)
		check(err)
		all = append(all, vector{"kms", seed, path, clear, append([]byte("k8s:enc:kms:v2:key1:"), stored...)})
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", " ")
	check(encoder.Encode(all))
}
