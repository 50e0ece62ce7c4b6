// SPDX-License-Identifier: MIT OR GPL-2.0
/*
 * A network card for tests, as a kernel module. Its table takes filters of TC flower: drop the packets of one IPv4 or
 * IPv6 source. It is not part of Weir, and no hardware.
 *
 *   wire0 ---- card0       wire1 ---- card1 ...
 *
 * What is sent on wire0 arrives at card0, unless the table drops it, and the other way round without a table. The table
 * has `entries` entries, and a change takes `update_us`. A real driver has its counters in hardware: here, they are
 * read when the kernel asks, and with `delayed` it says that it reads them from time to time. The parameters can be
 * changed in /sys/module/flowcard/parameters.
 */
#include <linux/delay.h>
#include <linux/etherdevice.h>
#include <linux/hash.h>
#include <linux/hashtable.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/jhash.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/spinlock.h>
#include <net/flow_offload.h>
#include <net/ipv6.h>
#include <net/pkt_cls.h>

enum { PAIRS_MAX = 4, HASH_BITS = 10 };

static uint pairs = 1;
module_param(pairs, uint, 0444);
static uint entries = 512;
module_param(entries, uint, 0644);
static uint update_us;
module_param(update_us, uint, 0644);
static bool delayed;
module_param(delayed, bool, 0644);

struct source {
	__be16 protocol;
	struct in6_addr address; /* IPv4 in the first four bytes */
};

struct entry {
	struct hlist_node by_source;
	unsigned long cookie;
	struct source source;
	u64 packets, bytes;
	u64 read_packets, read_bytes; /* what the kernel knows */
	unsigned long last_used;
};

/* Both ends of a pair. Only card ends have a table. */
struct end {
	struct net_device *peer;
	bool is_card;
	spinlock_t lock; /* of the table */
	DECLARE_HASHTABLE(table, HASH_BITS);
	uint used;
};

static struct net_device *ends[2 * PAIRS_MAX];
static LIST_HEAD(blocks);

static u32 hash_of(const struct source *source)
{
	return jhash(&source->address, sizeof(source->address), (__force u16)source->protocol);
}

static struct entry *find(struct end *card, const struct source *source)
{
	struct entry *entry;

	hash_for_each_possible(
		card->table, entry, by_source,
		hash_of(source)) if (entry->source.protocol == source->protocol &&
				     ipv6_addr_equal(&entry->source.address, &source->address)) return entry;
	return NULL;
}

static struct entry *find_cookie(struct end *card, unsigned long cookie)
{
	struct entry *entry;
	int bucket;

	hash_for_each(card->table, bucket, entry, by_source) if (entry->cookie == cookie) return entry;
	return NULL;
}

/* The source of a frame. */
static bool source_of(const struct sk_buff *skb, struct source *source)
{
	struct ethhdr ethernet;

	memset(source, 0, sizeof(*source));
	if (skb_copy_bits(skb, 0, &ethernet, sizeof(ethernet)))
		return false;
	source->protocol = ethernet.h_proto;
	if (ethernet.h_proto == htons(ETH_P_IP))
		return !skb_copy_bits(skb, ETH_HLEN + offsetof(struct iphdr, saddr), &source->address, 4);
	if (ethernet.h_proto == htons(ETH_P_IPV6))
		return !skb_copy_bits(skb, ETH_HLEN + offsetof(struct ipv6hdr, saddr), &source->address, 16);
	return false;
}

/* Whether the table drops a frame, which is counted then. */
static bool drops(struct end *card, const struct sk_buff *skb)
{
	struct source source;
	struct entry *entry;

	if (!source_of(skb, &source))
		return false;
	spin_lock_bh(&card->lock);
	entry = find(card, &source);
	if (entry) {
		entry->packets++;
		entry->bytes += skb->len;
		entry->last_used = jiffies;
	}
	spin_unlock_bh(&card->lock);
	return entry;
}

static netdev_tx_t end_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct end *end = netdev_priv(dev);
	struct end *to = netdev_priv(end->peer);

	dev->stats.tx_packets++;
	dev->stats.tx_bytes += skb->len;
	if (to->is_card && drops(to, skb))
		consume_skb(skb);
	else
		dev_forward_skb(end->peer, skb);
	return NETDEV_TX_OK;
}

/* The source that a filter is for, if it is one that the table can have. */
static int source_of_filter(struct flow_cls_offload *filter, struct source *source)
{
	struct flow_rule *rule = flow_cls_offload_flow_rule(filter);
	struct netlink_ext_ack *extack = filter->common.extack;
	const u64 known = BIT_ULL(FLOW_DISSECTOR_KEY_CONTROL) | BIT_ULL(FLOW_DISSECTOR_KEY_BASIC) |
			  BIT_ULL(FLOW_DISSECTOR_KEY_IPV4_ADDRS) | BIT_ULL(FLOW_DISSECTOR_KEY_IPV6_ADDRS);
	struct flow_match_basic basic;
	bool is_plain = false;

	memset(source, 0, sizeof(*source));
	if (rule->match.dissector->used_keys & ~known || !flow_rule_match_key(rule, FLOW_DISSECTOR_KEY_BASIC))
		goto unknown;
	flow_rule_match_basic(rule, &basic);
	source->protocol = basic.key->n_proto;
	if (flow_rule_match_key(rule, FLOW_DISSECTOR_KEY_IPV4_ADDRS) && basic.key->n_proto == htons(ETH_P_IP)) {
		struct flow_match_ipv4_addrs match;

		flow_rule_match_ipv4_addrs(rule, &match);
		memcpy(&source->address, &match.key->src, 4);
		is_plain = match.mask->src == htonl(~0) && !match.mask->dst;
	} else if (flow_rule_match_key(rule, FLOW_DISSECTOR_KEY_IPV6_ADDRS) &&
		   basic.key->n_proto == htons(ETH_P_IPV6)) {
		static const struct in6_addr ones = {.s6_addr = {[0 ... 15] = 0xff}};
		struct flow_match_ipv6_addrs match;

		flow_rule_match_ipv6_addrs(rule, &match);
		source->address = match.key->src;
		is_plain = ipv6_addr_equal(&match.mask->src, &ones) && ipv6_addr_any(&match.mask->dst);
	}
	if (is_plain && !basic.mask->ip_proto)
		return 0;
unknown:
	NL_SET_ERR_MSG_MOD(extack, "only one source address");
	return -EOPNOTSUPP;
}

static int add(struct end *card, struct flow_cls_offload *filter)
{
	struct flow_rule *rule = flow_cls_offload_flow_rule(filter);
	enum flow_action_hw_stats_bit counting =
		delayed ? FLOW_ACTION_HW_STATS_DELAYED_BIT : FLOW_ACTION_HW_STATS_IMMEDIATE_BIT;
	struct netlink_ext_ack *extack = filter->common.extack;
	struct entry *entry;
	struct source source;
	int failed = source_of_filter(filter, &source);

	if (failed)
		return failed;
	if (!flow_offload_has_one_action(&rule->action) || rule->action.entries[0].id != FLOW_ACTION_DROP) {
		NL_SET_ERR_MSG_MOD(extack, "only drop");
		return -EOPNOTSUPP;
	}
	if (!flow_action_hw_stats_check(&rule->action, extack, counting))
		return -EOPNOTSUPP;
	entry = kzalloc(sizeof(*entry), GFP_KERNEL);
	if (!entry)
		return -ENOMEM;
	entry->cookie = filter->cookie;
	entry->source = source;
	entry->last_used = jiffies;
	spin_lock_bh(&card->lock);
	if (find(card, &source))
		failed = -EEXIST;
	else if (card->used >= entries)
		failed = -ENOSPC;
	if (!failed) {
		hash_add(card->table, &entry->by_source, hash_of(&source));
		card->used++;
	}
	spin_unlock_bh(&card->lock);
	if (failed) {
		NL_SET_ERR_MSG_MOD(extack, "table full, or the source is in it");
		kfree(entry);
	}
	return failed;
}

static int delete(struct end *card, unsigned long cookie)
{
	struct entry *entry;

	spin_lock_bh(&card->lock);
	entry = find_cookie(card, cookie);
	if (entry) {
		hash_del(&entry->by_source);
		card->used--;
	}
	spin_unlock_bh(&card->lock);
	kfree(entry);
	return entry ? 0 : -ENOENT;
}

/* What is new since the last time. */
static int read_counters(struct end *card, struct flow_cls_offload *filter)
{
	struct entry *entry;

	spin_lock_bh(&card->lock);
	entry = find_cookie(card, filter->cookie);
	if (entry) {
		flow_stats_update(&filter->stats, entry->bytes - entry->read_bytes,
				  entry->packets - entry->read_packets, 0, entry->last_used,
				  delayed ? FLOW_ACTION_HW_STATS_DELAYED : FLOW_ACTION_HW_STATS_IMMEDIATE);
		entry->read_bytes = entry->bytes;
		entry->read_packets = entry->packets;
	}
	spin_unlock_bh(&card->lock);
	return entry ? 0 : -ENOENT;
}

static int setup_filter(enum tc_setup_type type, void *data, void *priv)
{
	struct net_device *dev = priv;
	struct flow_cls_offload *filter = data;
	struct end *card = netdev_priv(dev);

	if (type != TC_SETUP_CLSFLOWER || !tc_cls_can_offload_and_chain0(dev, &filter->common))
		return -EOPNOTSUPP;
	if (filter->command != FLOW_CLS_STATS && update_us)
		usleep_range(update_us, update_us + 20);
	switch (filter->command) {
	case FLOW_CLS_REPLACE:
		return add(card, filter);
	case FLOW_CLS_DESTROY:
		return delete (card, filter->cookie);
	case FLOW_CLS_STATS:
		return read_counters(card, filter);
	default:
		return -EOPNOTSUPP;
	}
}

static int setup(struct net_device *dev, enum tc_setup_type type, void *data)
{
	struct end *end = netdev_priv(dev);

	if (type != TC_SETUP_BLOCK || !end->is_card)
		return -EOPNOTSUPP;
	return flow_block_cb_setup_simple(data, &blocks, setup_filter, dev, dev, true);
}

static const struct net_device_ops operations = {
	.ndo_start_xmit = end_xmit,
	.ndo_setup_tc = setup,
	.ndo_set_mac_address = eth_mac_addr,
	.ndo_validate_addr = eth_validate_addr,
};

static void setup_end(struct net_device *dev)
{
	ether_setup(dev);
	eth_hw_addr_random(dev);
	dev->netdev_ops = &operations;
	dev->features |= NETIF_F_LLTX;
	dev->max_mtu = ETH_MAX_MTU;
	dev->needs_free_netdev = true;
}

static void remove_all(void)
{
	for (uint i = 0; i < 2 * PAIRS_MAX; i++)
		if (ends[i])
			unregister_netdev(ends[i]);
}

static int make(uint number, bool is_card)
{
	const char *name = is_card ? "card%d" : "wire%d";
	struct net_device *dev = alloc_netdev(sizeof(struct end), name, NET_NAME_ENUM, setup_end);
	struct end *end;
	int failed;

	if (!dev)
		return -ENOMEM;
	end = netdev_priv(dev);
	end->is_card = is_card;
	spin_lock_init(&end->lock);
	hash_init(end->table);
	if (is_card) {
		/* An operator may switch it off: ethtool -K card0 hw-tc-offload off */
		dev->hw_features |= NETIF_F_HW_TC;
		dev->features |= NETIF_F_HW_TC;
	}
	failed = register_netdev(dev);
	if (failed) {
		free_netdev(dev);
		return failed;
	}
	ends[number] = dev;
	return 0;
}

static int __init flowcard_init(void)
{
	int failed = pairs > PAIRS_MAX ? -EINVAL : 0;

	for (uint i = 0; i < 2 * pairs && !failed; i++)
		failed = make(i, i % 2);
	if (failed) {
		remove_all();
		return failed;
	}
	for (uint i = 0; i < 2 * pairs; i++)
		((struct end *)netdev_priv(ends[i]))->peer = ends[i ^ 1];
	return 0;
}

static void __exit flowcard_exit(void)
{
	remove_all();
}

module_init(flowcard_init);
module_exit(flowcard_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("A card with a table for TC flower, for tests");
