"""Orders from a search, for numbers of partitions without a construction.

All meet the lower bound, except for 6 partitions: no order does, and Legend's is used.
 A letter is a load:
half its place in ALPHABET is the partition, and an odd place means that the newer of the two older
ones in the buffer stays. The first buffer is 0, 1, 2, with 2 the newest and 0 the oldest.
"""

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

LOADS: dict[int, str] = {
    4: "GC",
    5: "GIDF",
    6: "GIKDHEI",
    7: "GJKMBJCGL",
    8: "HILAMJOFLNDPG",
    9: "HIKBHMPBRCNIFPLQG",
    10: "HIKMFOJNAQJSKGRNSODQE",
    11: "HIKNHPRLFMAIPTEUPDMTQVGBKT",
    12: "HIKNEORSDMUIBTPMHXSVHKBQXLFVODXI",
    14: "HILNOARTVCPKWYBGVMaKDYOGQIUESWPFIZTLQFNWDSGY",
    15: "HIKNPRTGUCXRLZIVAOEWNBaJPdXHYSAKHQbMTCYNcVREaLVTFJW",
    18: "HIKNPQFNTUXGYQbdIeZFhJaKXfSdOgXIBYCQiBTIUMbHgjcFXMYULiODbShDdKBHPUgRGeCNAai",
    19: "HILNOQTUWZbdPHehWFdIhjkaFOYBHNlXCgZSFLclAUJSglVaDfAXSMbGiVQflCcAjMUFQYjaLWRgOCjeFJYK",
    22: (
        "HIKMORITVWALZTFMGaXcegjlSDjGVRBMmokRKjEpJfSBnHOlKnfPqXiYIdQnXZDpdNhAibNfEkcKVEPLqhZUf"
        "kXNTrdOapgXFmCQfraDVgImjqkBoG"
    ),
    23: (
        "HIKNPRTVXYDacfTHgRBISFeOjFaljKnFYGjcUOAldReCSKBVprmIipkscLpfZrtFRCjrTMgsWAftmGaMqlYhb"
        "VCoNXEhKrRXIaRYnobStpPHrcCngPWkHVtMcFUem"
    ),
    26: (
        "HIKMORSVDWYacPfBhajJZeKknoXPYqgTKOsGfTnvIVhQWsvkHBXwjUKayFPJnUraAVwFoNinzQrFfvYKtcALR"
        "udwngMXfIkqAjuPhHLyCvbNHVszcpIBsSjCdGoRlatRnEgwZkVfySEcXrIxClOSAyMZGnCQfoxvL"
    ),
    27: (
        "HIKNODRSUXYRbdXfhiIRElmXFKolNgqCnItuXxzJvBeEpzBUI0WDcvUszawmYGxlDSKthcVQNzGsq0vbsldox"
        "RfsiNA1wPBbnhIZCjbeyZkvojTHeNqXPeUKjzrdZNmOj0GhvOoaKWAcjkqSglIcEuMaFrxgOzl1VFYtPKARue"
        "0Tmz"
    ),
    30: (
        "HILMPQTUWYDacfhXjkmRoqhsInuPpKDlAgxGZQvqJzfFwpYcS0H3VpBsRrC5Se0L27BzNirHu4dBOsFNvk4Hb"
        "n6cjDVKStwlyXM0IPblVfY6tifPwD6vxqWQUN57eo5wmAuX3x0sGoSIEj3qPdUmFg7JM3btckSmYy5KXm0joc"
        "MCyKd0o7bTxNYAJUxcQ43hDTuzV0aBrKEQizGeC0gZbyOG"
    ),
    31: (
        "HIKNHOQTUXZPEadfhjlGmpQqZTCsfQuwtKbz1kPioSNtVeyW2RcN4jJSK31d7r5Ul9vSzAho50B9HbxjYH3v4"
        "Zx1XoKUhr3E6Li9RtoFZ94yIPc5sgumjXqwyC0MEr1uVIQxhaAVmS7QkFUyHcCjsAn25bONu6CPe9wN7lCZIh"
        "MAelpuW4Dg8TdmZLeIrvcoarOA63I9CoUiy79qksY7IXGt1eSFw2lcLWBqjSw"
    ),
}
