//! IP packets of generated flows.

/// A host: client and server have the flows, routers send errors, and a stranger forges some.
pub type Host = usize;

pub const TCP: u8 = 6;

/// The IP packet of a flow with a number, between two hosts. Flows with odd numbers are IPv6.
pub fn ip(number: u32, [source, destination]: [Host; 2], protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = if is_ipv6(number) {
        let mut header = vec![0x60, 0, 0, 0];
        header.extend((payload.len() as u16).to_be_bytes());
        header.extend([protocol, 64]);
        header
    } else {
        let mut header = vec![0x45, 0];
        header.extend((20 + payload.len() as u16).to_be_bytes());
        header.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
        header
    };
    for host in [source, destination] {
        packet.extend(address(number, host));
    }
    packet.extend(payload);
    packet
}

/// The client of each flow has an address of its own.
pub fn address(number: u32, host: Host) -> Vec<u8> {
    if is_ipv6(number) {
        let last = if host == 0 { number } else { 1 };
        let address = 0x2001_0db8 << 96 | (host as u128) << 64 | u128::from(last);
        return address.to_be_bytes().into();
    }
    let address = [0x0a00_0000 | number, 0xc633_6401, 0xc000_0201, 0xcb00_7109][host];
    address.to_be_bytes().into()
}

pub fn is_ipv6(number: u32) -> bool {
    number % 2 == 1
}
