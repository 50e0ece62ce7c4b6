//! LINKTYPE numbers of the tcpdump group.

use weir_abi::Link;

/// The link types whose header the reader takes off.
pub(super) mod taken_off {
    pub(in crate::capture) const NULL: u16 = 0;
    pub(in crate::capture) const SLIP: u16 = 8;
    pub(in crate::capture) const PPP: u16 = 9;
    pub(in crate::capture) const PPP_HDLC: u16 = 50;
    pub(in crate::capture) const PPP_ETHER: u16 = 51;
    pub(in crate::capture) const ATM_RFC1483: u16 = 100;
    pub(in crate::capture) const C_HDLC: u16 = 104;
    pub(in crate::capture) const FRELAY: u16 = 107;
    pub(in crate::capture) const LOOP: u16 = 108;
    pub(in crate::capture) const ENC: u16 = 109;
    pub(in crate::capture) const PFLOG: u16 = 117;
    pub(in crate::capture) const PPP_PPPD: u16 = 166;
    pub(in crate::capture) const PPP_WITH_DIR: u16 = 204;
    pub(in crate::capture) const C_HDLC_WITH_DIR: u16 = 205;
    pub(in crate::capture) const IPNET: u16 = 226;
    pub(in crate::capture) const NFLOG: u16 = 239;
    pub(in crate::capture) const NETANALYZER: u16 = 240;
    pub(in crate::capture) const PKTAP: u16 = 258;
    pub(in crate::capture) const ALL: [u16; 18] = [
        NULL,
        SLIP,
        ATM_RFC1483,
        FRELAY,
        PPP,
        PPP_HDLC,
        PPP_ETHER,
        C_HDLC,
        LOOP,
        ENC,
        PFLOG,
        PPP_PPPD,
        PPP_WITH_DIR,
        C_HDLC_WITH_DIR,
        IPNET,
        NFLOG,
        NETANALYZER,
        PKTAP,
    ];
}

/// The link layer of a LINKTYPE, if the datapath parses it.
#[inline]
pub fn link_of(link_type: u16) -> Option<Link> {
    match link_type {
        1 => Some(Link::Ethernet),
        12 | 14 | 101 | 228 | 229 => Some(Link::RawIp),
        113 => Some(Link::Cooked),
        276 => Some(Link::Cooked2),
        _ => None,
    }
}

/// The LINKTYPE of a link layer.
pub fn link_type_of(link: Link) -> u16 {
    match link {
        Link::Ethernet => 1,
        Link::RawIp => 101,
        Link::Cooked => 113,
        Link::Cooked2 => 276,
    }
}

/// The registered name of common link types; `unknown` for the others.
pub fn link_type_name(link_type: u16) -> &'static str {
    NAMES.iter().find(|(number, _)| *number == link_type).map_or("unknown", |&(_, name)| name)
}

const NAMES: &[(u16, &str)] = &[
    (0, "NULL"),
    (1, "ETHERNET"),
    (6, "IEEE802_5"),
    (8, "SLIP"),
    (9, "PPP"),
    (10, "FDDI"),
    (12, "RAW"),
    (14, "RAW"),
    (50, "PPP_HDLC"),
    (51, "PPP_ETHER"),
    (100, "ATM_RFC1483"),
    (101, "RAW"),
    (104, "C_HDLC"),
    (105, "IEEE802_11"),
    (106, "ATM_CLIP"),
    (107, "FRELAY"),
    (108, "LOOP"),
    (109, "ENC"),
    (113, "LINUX_SLL"),
    (117, "PFLOG"),
    (119, "IEEE802_11_PRISM"),
    (123, "SUNATM"),
    (127, "IEEE802_11_RADIOTAP"),
    (129, "ARCNET_LINUX"),
    (137, "JUNIPER_ATM1"),
    (147, "USER0"),
    (148, "USER1"),
    (149, "USER2"),
    (162, "USER15"),
    (163, "IEEE802_11_AVS"),
    (164, "JUNIPER_MONITOR"),
    (166, "PPP_PPPD"),
    (178, "JUNIPER_ETHER"),
    (182, "MFR"),
    (187, "BLUETOOTH_HCI_H4"),
    (189, "USB_LINUX"),
    (192, "PPI"),
    (195, "IEEE802_15_4_WITHFCS"),
    (201, "BLUETOOTH_HCI_H4_WITH_PHDR"),
    (204, "PPP_WITH_DIR"),
    (205, "C_HDLC_WITH_DIR"),
    (206, "FRELAY_WITH_DIR"),
    (220, "USB_LINUX_MMAPPED"),
    (226, "IPNET"),
    (227, "CAN_SOCKETCAN"),
    (228, "IPV4"),
    (229, "IPV6"),
    (231, "DBUS"),
    (239, "NFLOG"),
    (240, "NETANALYZER"),
    (242, "IPOIB"),
    (247, "INFINIBAND"),
    (249, "USBPCAP"),
    (252, "WIRESHARK_UPPER_PDU"),
    (253, "NETLINK"),
    (258, "PKTAP"),
    (271, "VSOCK"),
    (272, "NORDIC_BLE"),
    (276, "LINUX_SLL2"),
    (281, "DSA_TAG_BRCM"),
    (282, "DSA_TAG_BRCM_PREPEND"),
    (284, "DSA_TAG_DSA"),
    (285, "DSA_TAG_EDSA"),
];
